"""How near generated images come to real ones: FID, KID, precision and recall, computed by torch-fidelity.

With f the features of an image under a network (2048 of Inception's) and G, R the generated and the real images:

    FID = |mean f(G) - mean f(R)|^2 + tr(C_G + C_R - 2 (C_G C_R)^(1/2)),    C the covariances   (Heusel et al. 2017)
    KID = the unbiased estimate of MMD^2 under k(a, b) = (a.b / d + 1)^3, mean over subsets (Binkowski et al. 2018)
    precision = the share of G within the balls around R whose radii reach the third neighbour within R;
    recall = the share of R within those of G                                                (Kynkaanniemi et al. 2019)

FID grows as images get fewer: only numbers of equally many compare, and of the same network. Images are taken as 8-bit
RGB: unpermuted, levels spread over 0..255, grey values three times. No weights are ever fetched from here: a network
whose weights are not there leaves the measures empty, with one line that says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from flows import Flow
from harness.core.environment import package_version
from harness.core.settings import INCEPTION, LEAST_SAMPLES, SampleSettings
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
"""Our names of torch-fidelity's measures; `kid_sd` is the standard deviation between subsets."""

WEIGHTS = "weights-inception-2015-12-05-6726825d.pth"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
SUBSETS, SUBSET = 100, 1000  # of KID: how many, and how large at most
FEATURE_BATCH = 32  # images at once under the network, whose maps take tens of MB for each
DISTANCES = 1000  # rows at once of a matrix of distances
SEED = 0  # of the real images that are taken and of KID's subsets: the same for every trial


@dataclass(frozen=True)
class Fidelity:
    """What a trial's record says of its samples.

    Attributes:
        row: every one of MEASURES, `samples` (how many were compared) and `extractor`; None where there is no value.
        notes: "fidelity": what was compared with what, or why nothing was; "fidelity_lost": samples not finite.
    """

    row: dict[str, Any] = field(default_factory=lambda: dict.fromkeys((*MEASURES, "samples", "extractor")))
    notes: dict[str, str] = field(default_factory=dict)


class Unavailable(Exception):
    """There is no measuring, and the message says why, in one line."""


class Images(Dataset[Tensor]):
    """Images (N, 3, H, W) as torch-fidelity takes them."""

    def __init__(self, images: Tensor) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Tensor:
        return self._images[index]


def measure_fidelity(
    flow: Flow, pipeline: Pipeline, asked: SampleSettings | None, seed: int, batch: int, root: Path | None
) -> Fidelity:
    """Draw samples and compare them with real images, if asked.

    Args:
        flow: with the weights to be judged.
        pipeline: gives the real images, and brings samples back into their form.
        asked: how many, in whose features; None: nothing is done.
        seed: of the samples.
        batch: samples drawn at once.
        root: the data root, where Inception's weights may lie.

    Returns:
        The measures, or why there are none: whatever goes wrong, a trained flow keeps its record.
    """
    if asked is None:
        return Fidelity()
    found = Fidelity()
    found.row["extractor"] = asked.extractor
    try:
        weights = find_extractor(asked.extractor, root)
        real, origin = real_images(pipeline, asked.count)
        drawn, lost = generated_images(flow, pipeline, len(real), seed, batch)
        values = compare(drawn, real, asked.extractor, weights, pipeline.device.type == "cuda")
    except Unavailable as error:
        found.notes["fidelity"] = f"no FID, KID, precision and recall: {error}"
    except Exception as error:  # a layer's inverse may be anybody's, and so may the network
        found.notes["fidelity"] = f"no FID, KID, precision and recall: {type(error).__name__}: {error}"
    else:
        found.row.update({name: value if math.isfinite(value) else None for name, value in values.items()})
        found.row["samples"] = len(drawn)
        network = asked.extractor + (f" (SHA-256 {SHA256[:12]}…)" if weights is not None else "")
        by = f"torch-fidelity {package_version('torch-fidelity')}"
        found.notes["fidelity"] = f"samples and {origin}; features of {network}, {by}"
        odd = ", ".join(f"{name} is {value}" for name, value in values.items() if not math.isfinite(value))
        if odd:
            found.notes["fidelity"] += f"; {odd}"
        if lost:
            text = f"{lost} of {len(drawn)} samples are not finite, and count as what they decode to"
            found.notes["fidelity_lost"] = text
    return found


def find_extractor(name: str, root: Path | None) -> Path | None:
    """Make sure that a network can be had here and now.

    Returns:
        The file of its weights; None for one that was registered with torch-fidelity and needs none from us.

    Raises:
        Unavailable: it is not there, or torch-fidelity would fetch its weights.
    """
    if name == INCEPTION:
        return find_weights(root)
    from torch_fidelity.registry import FEATURE_EXTRACTORS_REGISTRY as registry

    if name not in registry:
        raise Unavailable(f"torch-fidelity has no feature extractor {name!r}; the usual one is {INCEPTION}")
    if registry[name].__module__.startswith("torch_fidelity."):
        raise Unavailable(f"torch-fidelity would fetch the weights of {name!r}, and nothing is fetched here")
    return None


def find_weights(root: Path | None, digest: str = SHA256) -> Path:
    """The file of Inception's weights, in the data root or where torch keeps what it fetched.

    It is a pickle, which torch-fidelity reads without restraint, so only the file with this digest will do.
    """
    damaged = []
    for place, folder in _places(root):
        path = folder / WEIGHTS
        if path.is_file():
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found == digest:
                return path
            damaged.append(f"{place} has another file of this name, of SHA-256 {found[:12]}…")
    raise Unavailable(
        f"Inception's weights are not there; put torch-fidelity's {WEIGHTS} into weights/ of the data root or into "
        "torch's cache (hub/checkpoints). A trial that is done is run again once its record is deleted"
        + "".join(f"; {text}" for text in damaged)
    )


def _places(root: Path | None) -> Iterator[tuple[str, Path]]:
    if root is not None:
        yield "weights/", root / "weights"
    yield "torch's cache", Path(torch.hub.get_dir()) / "checkpoints"


def real_images(pipeline: Pipeline, count: int) -> tuple[Tensor, str]:
    """As many real images as asked for, or as there are, at random but the same for every trial.

    Held-out images where the test split has as many, else training images, whichever split has more.

    Returns:
        uint8 (N, 3, H, W) on the CPU, and where they come from, such as "512 of 10,000 test images".

    Raises:
        Unavailable: these are no images, or too few.
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
    """The number of levels of grey or RGB images; Unavailable for any other events."""
    if pipeline.levels is None or len(pipeline.shape) != 3 or pipeline.shape[0] not in (1, 3):
        raise Unavailable(f"events {pipeline.shape} are no grey or RGB images on levels")
    return pipeline.levels


def generated_images(flow: Flow, pipeline: Pipeline, count: int, seed: int, batch: int) -> tuple[Tensor, int]:
    """Samples through the flow's inverse, as the data are: uint8 (count, 3, H, W), and how many were not finite."""
    levels = levels_of(pipeline)
    chance = generator(torch.device("cpu"), seed, "samples to compare")
    images = torch.empty(count, 3, *pipeline.shape[1:], dtype=torch.uint8)
    lost = 0
    flow.eval()
    for start in range(0, count, batch):
        drawn = flow.sample(min(batch, count - start), generator=chance)
        lost += int((~drawn.isfinite()).flatten(1).any(1).sum())
        images[start : start + batch] = eight_bit(torch.from_numpy(pipeline.to_data(drawn)), levels)
    return images, lost


def eight_bit(values: Tensor, levels: int) -> Tensor:
    """Images (N, C, H, W) on levels 0..levels-1, C 1 or 3, as uint8 (N, 3, H, W) on the CPU, over the whole 0..255."""
    spread = (values.cpu().double() * (255 / (levels - 1))).round().to(torch.uint8)
    return spread.expand(-1, 3, -1, -1).contiguous()


def compare(generated: Tensor, real: Tensor, extractor: str, weights: Path | None, cuda: bool) -> dict[str, float]:
    """The measures of two sets of as many images, uint8 (N, 3, H, W), by our names.

    Args:
        generated, real: in this order, on which precision and recall depend.
        extractor: registered with torch-fidelity.
        weights: of Inception; else None.
        cuda: whether the network runs on the CUDA device.
    """
    from torch_fidelity import calculate_metrics  # takes torchvision along, seconds

    found = calculate_metrics(
        input1=Images(generated),
        input2=Images(real),
        fid=True,
        kid=True,
        prc=True,
        feature_extractor=extractor,
        feature_extractor_weights_path=None if weights is None else str(weights),
        kid_subsets=SUBSETS,
        kid_subset_size=min(SUBSET, len(generated) // 2),  # as large as the set, they would all be the same
        prc_batch_size=DISTANCES,
        rng_seed=SEED,
        batch_size=FEATURE_BATCH,
        cuda=cuda,
        cache=False,
        save_cpu_ram=True,  # no worker processes, and distances in parts
        verbose=False,
    )
    return {name: float(found[key]) for name, key in MEASURES.items()}
