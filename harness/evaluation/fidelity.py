"""Compare generated with real images: FID, KID, precision and recall, computed by torch-fidelity.

With f the features of an image under a network (2048 of Inception's) and G, R the generated and the real images:

    FID = |mean f(G) - mean f(R)|^2 + tr(C_G + C_R - 2 (C_G C_R)^(1/2)),    C the covariances   (Heusel et al. 2017)
    KID = the unbiased estimate of MMD^2 under k(a, b) = (a.b / d + 1)^3, mean over subsets (Binkowski et al. 2018)
    precision = the share of G within the balls around R whose radii reach the third neighbour within R;
    recall = the share of R within those of G                                                (Kynkaanniemi et al. 2019)

FID grows as the number of images decreases: only values from equal numbers of images and the same network are
comparable. Images are converted to 8-bit RGB: unpermuted, levels spread over 0..255, grey values repeated three times.
This module never downloads weights: without a network's weights the measures are empty, with a note of one line.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from flows import Flow
from harness.core.files import STATE, open_file
from harness.core.provenance.environment import package_version
from harness.core.records import finite
from harness.core.settings import INCEPTION, LEAST_SAMPLES, SampleSettings
from harness.core.texts import error_text
from harness.evaluation.evaluation import generator

if TYPE_CHECKING:
    from harness.pipeline.pipeline import Pipeline, Split

MEASURES = {
    "fid": "frechet_inception_distance",
    "kid": "kernel_inception_distance_mean",
    "kid_sd": "kernel_inception_distance_std",
    "precision": "precision",
    "recall": "recall",
}
"""Column names of torch-fidelity's measures; `kid_sd` is the standard deviation between subsets."""

WEIGHTS = "weights-inception-2015-12-05-6726825d.pth"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
SUBSETS, SUBSET = 100, 1000  # of KID: their number and largest size
FEATURE_BATCH = 32  # images per pass of the network, whose feature maps take tens of MB each
DISTANCES = 1000  # rows of the distance matrix computed at once
SEED = 0  # draws the real images and KID's subsets, equally for every trial


@dataclass(frozen=True)
class Fidelity:
    """Fidelity of samples, for a trial's record: a row without a measure has None there."""

    row: dict[str, Any] = field(default_factory=lambda: dict.fromkeys((*MEASURES, "samples", "extractor")))
    notes: dict[str, str] = field(default_factory=dict)  # "fidelity": what was compared, or why nothing was


class Unavailable(Exception):
    """Fidelity cannot be measured; the message gives the reason in one line."""


def measure_fidelity(
    flow: Flow, pipeline: Pipeline, asked: SampleSettings | None, seed: int, batch: int, root: Path | None
) -> Fidelity:
    """Draw samples and compare them with real images, if requested.

    Args:
        flow, pipeline: the flow to evaluate, and its data.
        asked: number of samples and extractor; None: do nothing.
        seed, batch: of the samples, and how many are drawn at once.
        root: the data root, which may contain Inception's weights.

    Returns:
        The measures, or the reason why there are none: no failure here may cost a trained flow its record.
    """
    if asked is None:
        return Fidelity()
    result = Fidelity()
    result.row["extractor"] = asked.extractor
    try:
        weights = find_extractor(asked.extractor, root)
        real, origin = real_images(pipeline, asked.count)
        drawn, lost = generated_images(flow, pipeline, len(real), seed, batch)
        values = compare(drawn, real, asked.extractor, weights, pipeline.device.type == "cuda")
    except Unavailable as error:
        result.notes["fidelity"] = f"no FID, KID, precision and recall: {error}"
    except Exception as error:  # third-party code: the inverse of a layer, and the network
        result.notes["fidelity"] = f"no FID, KID, precision and recall: {error_text(error)}"
    else:
        result.row.update({name: finite(value) for name, value in values.items()})
        result.row["samples"] = len(drawn)
        network = asked.extractor + (f" (SHA-256 {SHA256[:12]}…)" if weights is not None else "")
        by = f"torch-fidelity {package_version('torch-fidelity')}"
        result.notes["fidelity"] = f"samples and {origin}; features of {network}, {by}"
        odd = ", ".join(f"{name} is {value}" for name, value in values.items() if not math.isfinite(value))
        if odd:
            result.notes["fidelity"] += f"; {odd}"
        if lost:
            text = f"{lost} of {len(drawn)} samples are not finite, and are compared as decoded"
            result.notes["fidelity_lost"] = text
    return result


def find_extractor(name: str, root: Path | None) -> Path | None:
    """Ensure that a network is available without a download.

    Returns:
        The file of its weights; None for one that is registered with torch-fidelity and needs no file.

    Raises:
        Unavailable: it is missing, or torch-fidelity would download its weights.
    """
    if name == INCEPTION:
        return find_weights(root)
    from torch_fidelity.registry import FEATURE_EXTRACTORS_REGISTRY as registry

    if name not in registry:
        raise Unavailable(f"torch-fidelity has no feature extractor {name!r}; the usual one is {INCEPTION}")
    if registry[name].__module__.startswith("torch_fidelity."):
        raise Unavailable(f"torch-fidelity would download the weights of {name!r}, and nothing is downloaded here")
    return None


def find_weights(root: Path | None, digest: str = SHA256) -> Path:
    """Return the file of Inception's weights, from the data root or torch's download cache.

    It is a pickle, which torch-fidelity reads without restrictions, so only the file with this digest is accepted.
    """
    places = {} if root is None else {"weights/": root / "weights"}
    places["torch's cache"] = Path(torch.hub.get_dir()) / "checkpoints"
    damaged = []
    for place, folder in places.items():
        path = folder / WEIGHTS
        if path.is_file():
            with open_file(path, STATE) as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
            if actual == digest:
                return path
            damaged.append(f"{place} has another file of this name, of SHA-256 {actual[:12]}…")
    raise Unavailable(
        f"Inception's weights are missing; put torch-fidelity's {WEIGHTS} into weights/ of the data root or into "
        "torch's cache (hub/checkpoints). To run a completed trial again, delete its record"
        + "".join(f"; {text}" for text in damaged)
    )


def real_images(pipeline: Pipeline, count: int) -> tuple[Tensor, str]:
    """Return `count` real images, or all if there are fewer, drawn at random but equally for every trial.

    They are held-out images if the test split has enough, else training images, whichever split has more.

    Returns:
        uint8 (N, 3, H, W) on the CPU, and their origin, such as "512 of 10,000 test images".

    Raises:
        Unavailable: the events are not images, or there are too few.
    """
    levels = levels_of(pipeline)
    splits: tuple[Split, Split] = ("test", "train")
    enough = [split for split in splits if len(pipeline.raw(split)) >= count]
    split = enough[0] if enough else max(splits, key=lambda name: len(pipeline.raw(name)))
    values = pipeline.raw(split)
    taken = min(count, len(values))
    if taken < LEAST_SAMPLES:
        raise Unavailable(f"{taken} {split} images are too few; at least {LEAST_SAMPLES} are compared")
    chosen = torch.randperm(len(values), generator=generator(torch.device("cpu"), SEED, "real images"))[:taken]
    name = {"test": "test", "train": "training"}[split]
    parts = [eight_bit(values[part], levels) for part in chosen.sort().values.split(FEATURE_BATCH)]
    return torch.cat(parts), f"{taken:,} of {len(values):,} {name} images"


def levels_of(pipeline: Pipeline) -> int:
    """Return the number of levels of grey or RGB images; raise Unavailable for any other events."""
    if pipeline.levels is None or len(pipeline.shape) != 3 or pipeline.shape[0] not in (1, 3):
        raise Unavailable(f"events of shape {pipeline.shape} are not grey or RGB images on levels")
    return pipeline.levels


def generated_images(flow: Flow, pipeline: Pipeline, count: int, seed: int, batch: int) -> tuple[Tensor, int]:
    """Return samples of the flow in the form of data, uint8 (count, 3, H, W), and how many were not finite."""
    levels = levels_of(pipeline)
    noise = generator(torch.device("cpu"), seed, "samples to compare")
    images = torch.empty(count, 3, *pipeline.shape[1:], dtype=torch.uint8)
    lost = 0
    flow.eval()
    for start in range(0, count, batch):
        drawn = flow.sample(min(batch, count - start), generator=noise)
        lost += int((~drawn.isfinite()).flatten(1).any(1).sum())
        images[start : start + batch] = eight_bit(torch.from_numpy(pipeline.to_data(drawn)), levels)
    return images, lost


def eight_bit(values: Tensor, levels: int) -> Tensor:
    """Return images (N, C, H, W) on levels 0..levels-1, C 1 or 3, as uint8 (N, 3, H, W) on the CPU, over 0..255."""
    spread = (values.cpu().double() * (255 / (levels - 1))).round().to(torch.uint8)
    return spread.expand(-1, 3, -1, -1).contiguous()


def compare(generated: Tensor, real: Tensor, extractor: str, weights: Path | None, cuda: bool) -> dict[str, float]:
    """Return the measures of two equally large sets of images, uint8 (N, 3, H, W), by column name.

    Precision and recall depend on their order. `extractor` is a network registered with torch-fidelity, with the file
    of its weights if it is Inception.
    """
    from torch_fidelity import calculate_metrics  # imports torchvision, which takes seconds

    metrics = calculate_metrics(
        input1=Subset(generated, range(len(generated))),  # type: ignore[arg-type]  # it expects a Dataset of tensors
        input2=Subset(real, range(len(real))),  # type: ignore[arg-type]
        fid=True,
        kid=True,
        prc=True,
        feature_extractor=extractor,
        feature_extractor_weights_path=None if weights is None else str(weights),
        kid_subsets=SUBSETS,
        kid_subset_size=min(SUBSET, len(generated) // 2),  # subsets as large as the set would all be equal
        prc_batch_size=DISTANCES,
        rng_seed=SEED,
        batch_size=FEATURE_BATCH,
        cuda=cuda,
        cache=False,
        save_cpu_ram=True,  # no worker processes, and distances in parts
        verbose=False,
    )
    return {name: float(metrics[key]) for name, key in MEASURES.items()}
