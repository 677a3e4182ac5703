"""Augmentation: the stated transformations, of training images only, without other effects."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest
import torch

from harness.core.errors import SuiteError
from harness.core.settings import DataRef, augmentation_fault
from harness.datasets.base import Splits
from harness.evaluation.evaluation import evaluate
from harness.pipeline.pipeline import Pipeline, augment, permutation
from harness.planning.settle import load_suite, settle
from harness.training.training import TrainingBatches

KINDS = ["crop_flip", "dihedral_shift"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def outcomes(image, kind):
    """Return every outcome of one channel, repeated by its number of equally likely transformations."""
    margin = {"crop_flip": 4, "dihedral_shift": 1}[kind]
    padded = np.pad(image, margin, mode="reflect")
    counts = Counter()
    for top, left in itertools.product(range(2 * margin + 1), repeat=2):
        crop = padded[top : top + len(image), left : left + image.shape[1]]
        mirrored = [crop, np.fliplr(crop)]
        if kind == "dihedral_shift":
            mirrored += [np.flipud(view) for view in mirrored]
            mirrored += [view.T for view in mirrored]
        counts.update(view.tobytes() for view in mirrored)
    return counts


@pytest.mark.parametrize(("kind", "shape"), [("crop_flip", (5, 6)), ("dihedral_shift", (3, 3))])
def test_outcomes_and_their_frequencies_are_as_stated(kind, shape):
    image = np.arange(shape[0] * shape[1], dtype=np.uint8).reshape(shape)
    expected = outcomes(image, kind)
    count = 100 * expected.total()
    moved = augment(torch.from_numpy(image).expand(count, 1, *shape), kind, generator())
    counts = Counter(outcome.tobytes() for outcome in moved.numpy())
    assert set(counts) == set(expected)
    for outcome, weight in expected.items():
        assert counts[outcome] == pytest.approx(100 * weight, abs=5 * 10 * weight**0.5)  # five standard deviations


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_channels_are_augmented_together_and_images_independently(kind, dtype):
    places = torch.arange(64, dtype=dtype).reshape(8, 8)
    images = torch.stack([places, places + 60]).expand(50, 2, 8, 8)
    before = images.clone()
    moved = augment(images, kind, generator())
    assert moved.shape == images.shape and moved.dtype == dtype and torch.equal(images, before)
    assert torch.equal(moved[:, 1], moved[:, 0] + 60)
    assert len(moved.flatten(1).unique(dim=0)) > 30
    assert torch.equal(moved, augment(images, kind, generator()))
    assert not torch.equal(moved, augment(images, kind, generator(1)))


def splits(shape=(2, 8, 8), constant=False):
    draw = np.random.default_rng(0)
    parts = [draw.integers(0, 256, (count, *shape), dtype=np.uint8) for count in (40, 12, 12)]
    if constant:
        parts[0][:] = np.arange(40, dtype=np.uint8).reshape(-1, *[1] * len(shape))
    return Splits(*parts, levels=256, description="")


def batches(kind, count=6, constant=False, **options):
    data = DataRef(label="x", name="x", augmentation=kind, **options)
    pipeline = Pipeline(splits(constant=constant), data, torch.float64)
    return list(itertools.islice(TrainingBatches(pipeline, 16, 0), count))


@pytest.mark.parametrize("kind", KINDS)
def test_augmentation_does_not_change_the_order_of_examples_and_the_noise(kind):
    """Images of one colour do not change under augmentation."""
    for (x, log_det), (moved, same) in zip(
        batches("none", constant=True), batches(kind, constant=True, permute=None), strict=True
    ):
        assert torch.equal(x, moved) and torch.equal(log_det, same)
    assert not torch.equal(batches("none")[0][0], batches(kind)[0][0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preprocessing", ["scale", "logit"])
def test_permutations_are_applied_after_augmentation(kind, preprocessing):
    order = permutation(2 * 8 * 8, 3)
    plain, permuted = (batches(kind, preprocessing=preprocessing, permute=seed) for seed in (None, 3))
    for (x, log_det), (moved, same) in zip(plain, permuted, strict=True):
        assert torch.equal(moved.flatten(1), x.flatten(1)[:, order]) and torch.equal(log_det, same)


@pytest.mark.parametrize("kind", KINDS)
def test_every_use_of_an_example_is_augmented_anew_from_the_original(kind):
    seen = {}
    pipeline = Pipeline(splits(), DataRef(label="x", name="x", augmentation=kind, dequantise=False), torch.float64)
    for x, _ in itertools.islice(TrainingBatches(pipeline, 40, 0), 5):
        for image in pipeline.to_data(x + 1e-9):
            colours = frozenset(image[0].ravel().tolist())
            owner = [index for index, image in enumerate(splits().train) if colours <= set(image[0].ravel().tolist())]
            seen.setdefault(owner[0], set()).add(image.tobytes())
    assert len(seen) == 40 and all(len(forms) > 1 for forms in seen.values())


def test_held_out_images_are_not_augmented():
    class Uniform(torch.nn.Module):
        def terms(self, x):
            return -x.flatten(1).square() @ torch.arange(128.0, dtype=x.dtype), torch.zeros(len(x), dtype=x.dtype)

    results = []
    for kind in ("none", *KINDS):
        pipeline = Pipeline(splits(), DataRef(label="x", name="x", augmentation=kind), torch.float64)
        results.append(evaluate(Uniform(), pipeline, "test", 2, 5, 0, torch.float64).values)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("crop_flip", (2, 32), r"'crop_flip' moves images, not events of shape \(2, 32\); use augmentation: none"),
        ("dihedral_shift", (1, 8, 6), "must be square; these are 8 x 6. Use crop_flip"),
        ("crop_flip", (1, 4, 8), "needs images with a side of at least 5; these are 4 x"),
        ("dihedral_shift", (1, 1, 1), "a side of at least 2"),
    ],
)
def test_data_that_cannot_be_augmented_are_refused(kind, shape, message):
    assert re.search(message, augmentation_fault(kind, shape))


SUITE = """\
suite: moved
kind: density
title: Moved
layers: {conv1x1: {}}
profiles:
  quick:
    flow: {levels: 1}
    datasets:
      digits: {augmentation: dihedral_shift}
      waveforms:
        augmentation: crop_flip
"""


def test_a_suite_with_impossible_augmentation_is_refused_with_its_position(tmp_path):
    file = tmp_path / "moved.yaml"
    file.write_text(SUITE)
    with pytest.raises(SuiteError, match=r"moved.yaml:11:23: waveforms: augmentation 'crop_flip' moves images"):
        load_suite(file)
    file.write_text(SUITE.replace("crop_flip", "none").replace("dihedral_shift", "flip"))
    with pytest.raises(SuiteError, match=r"(?s)'none', 'crop_flip' or 'dihedral_shift'"):
        load_suite(file)
    file.write_text(SUITE.replace("crop_flip", "none"))
    plan = settle(load_suite(file), "quick", "cpu").plan()[0]
    assert [trial.data.augmentation for trial in plan.trials] == ["dihedral_shift", "none"]
    assert ["augmentation" in trial.model_dump(mode="json")["data"] for trial in plan.trials] == [True, False]
    with pytest.raises(SuiteError, match=r"--set datasets.waveforms.augmentation=crop_flip.* moves images"):
        settle(load_suite(file), "quick", "cpu", settings=["datasets.waveforms.augmentation=crop_flip"]).plan()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_on_cuda_the_outcomes_are_the_same(kind):
    image = np.arange(25, dtype=np.uint8).reshape(5, 5)
    many = torch.from_numpy(image).cuda().expand(20_000, 1, 5, 5)
    moved = augment(many, kind, torch.Generator("cuda").manual_seed(0))
    assert {outcome.tobytes() for outcome in moved.cpu().numpy()} == set(outcomes(image, kind))
