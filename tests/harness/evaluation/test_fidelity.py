"""Fidelity of generated images: torch-fidelity's measures, without downloads."""

import math
import socket
import sys
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toys import density_trial, write_suite

import harness.kinds.density.run
from harness.core.errors import SuiteError
from harness.core.records import write_record
from harness.core.settings import INCEPTION, DataRef, LayerRef, SampleSettings
from harness.datasets.base import Splits
from harness.evaluation.fidelity import (
    MEASURES,
    WEIGHTS,
    Unavailable,
    compare,
    eight_bit,
    find_weights,
    measure_fidelity,
)
from harness.kinds.density.run import run as run_density
from harness.kinds.density.weights import load_flow, weights_path
from harness.pipeline.pipeline import Pipeline
from harness.planning.settle import load_suite, settle

NAME = "pixels-and-colours"
MIX = np.random.default_rng(5).normal(size=(48, 6)) / 48


@pytest.fixture
def extractor():
    """Register a linear map of the 48 entries of a 3x4x4 image with torch-fidelity for one test."""
    from torch_fidelity import FeatureExtractorBase, register_feature_extractor
    from torch_fidelity.registry import FEATURE_EXTRACTORS_REGISTRY

    class Linear(FeatureExtractorBase):
        def __init__(self, name, features_list, **kwargs):
            super().__init__(name, features_list)
            self.mix = torch.from_numpy(MIX)

        @staticmethod
        def get_provided_features_list():
            return ("mixed",)

        @staticmethod
        def get_default_feature_layer_for_metric(metric):
            return "mixed"

        def forward(self, images):
            assert images.dtype == torch.uint8 and images.shape[1:] == (3, 4, 4)
            return (images.double().flatten(1) @ self.mix,)

    register_feature_extractor(NAME, Linear)
    yield NAME
    del FEATURE_EXTRACTORS_REGISTRY[NAME]


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Fail the test if a connection is made, and use an empty torch cache."""
    attempts = []

    def refuse(*args, **kwargs):
        attempts.append(args)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    yield
    assert not attempts


def images(count, levels=256, channels=3, seed=0):
    """Return images in which all colours and positions differ, so that an exchange is detected."""
    draw = np.random.default_rng(seed)
    share = np.linspace(0.1, 0.9, channels * 16).reshape(channels, 4, 4)
    return draw.binomial(levels - 1, share, (count, channels, 4, 4)).astype(np.uint8)


def splits(levels=256, channels=3, test=64, train=64):
    parts = [images(count, levels, channels, seed) for seed, count in enumerate((train, 16, test))]
    return Splits(*parts, levels=levels, description="binomial toy")


def pipeline(data, **settings):
    return Pipeline(data, DataRef(label="toy", name="toy", **settings))


class Recital:
    """A flow whose samples are the prepared test images."""

    def __init__(self, pipe, change=lambda x: x):
        values = pipe.raw("test")
        self.x, self.next = change(pipe.prepare(values[: len(values)])[0]), 0

    def eval(self):
        return self

    def sample(self, n, temperature=1.0, generator=None):
        self.next += n
        return self.x[self.next - n : self.next]


def measure(pipe, flow, count=64, name=NAME, root=None):
    return measure_fidelity(flow, pipe, SampleSettings(count=count, extractor=name), 0, 25, root)


def test_distances_are_those_of_means_and_precision_measures_samples_recall_data(extractor):
    """With equal covariances FID is |shift|^2 of the features; KID equals its definition on the whole sets."""
    real = torch.from_numpy(images(200) // 2)
    shifted = compare(real + 5, real, extractor, None, cuda=False)
    shift = 5 * MIX.sum(0)
    assert shifted["fid"] == pytest.approx(shift @ shift, rel=1e-6)
    same = compare(real, real, extractor, None, cuda=False)
    assert abs(same["fid"]) < 1e-6 * shift @ shift and same["precision"] == same["recall"] == 1
    assert abs(same["kid"]) < 0.1 * shifted["kid"] and shifted["kid_sd"] > 1e-3 * shifted["kid"]
    # A model that generates a part of the data has high precision and low recall.
    real = torch.from_numpy(images(200))
    few = compare(real[:20].repeat(10, 1, 1, 1), real, extractor, None, cuda=False)
    assert few["precision"] == 1 and few["recall"] < 0.5


@pytest.mark.parametrize("settings", [{}, {"permute": 3}, {"preprocessing": "logit"}])
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_and_data_are_converted_in_the_same_way(channels, settings, extractor):
    """The distance is zero for a flow that returns the test images, under every pre-processing."""
    pipe = pipeline(splits(levels=17, channels=channels), **settings)
    result = measure(pipe, Recital(pipe))
    assert abs(result.row["fid"]) < 1e-6 and result.row["precision"] == result.row["recall"] == 1
    assert (result.row["samples"], result.row["extractor"]) == (64, NAME)
    by = f"features of {NAME}, torch-fidelity {version('torch-fidelity')}"
    assert result.notes == {"fidelity": f"samples and 64 of 64 test images; {by}"}


def test_levels_are_spread_over_eight_bits():
    values = torch.tensor([0, 8, 16], dtype=torch.uint8).reshape(3, 1, 1, 1).expand(3, 1, 2, 2)
    spread = eight_bit(values, 17)
    assert spread.shape == (3, 3, 2, 2) and spread.dtype == torch.uint8
    assert [int(image.unique()) for image in spread] == [0, 128, 255]
    colours = torch.stack([torch.arange(256).roll(shift) for shift in range(3)]).to(torch.uint8).reshape(1, 3, 16, 16)
    assert torch.equal(eight_bit(colours, 256), colours)


def test_samples_that_are_not_finite_are_counted_and_none_still_have_a_record(extractor):
    pipe = pipeline(splits())

    def break_three(x):
        x[[1, 30, 60], 0, 0, 0] = torch.tensor([math.nan, math.inf, -math.inf])
        return x

    result = measure(pipe, Recital(pipe, break_three))
    assert result.row["fid"] > 0
    assert result.notes["fidelity_lost"] == "3 of 64 samples are not finite, and are compared as decoded"

    class Broken(Recital):
        def sample(self, n, temperature=1.0, generator=None):
            raise RuntimeError("singular")

    pipe = pipeline(splits())
    result = measure(pipe, Broken(pipe))
    assert result.row["fid"] is None and result.notes["fidelity"].endswith("RuntimeError: singular")
    result = measure(pipeline(splits(channels=2)), None, count=10)
    assert result.row["fid"] is None and "not grey or RGB images on levels" in result.notes["fidelity"]


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"test": 40, "train": 400}, "50 of 400 training images"),
        ({"test": 400, "train": 40}, "50 of 400 test images"),
        ({"test": 30, "train": 20}, "30 of 30 test images"),
    ],
)
def test_training_images_are_used_if_there_are_too_few_others(sizes, text, extractor):
    pipe = pipeline(splits(**sizes))
    flow = Recital(pipeline(splits(test=50)))
    result = measure(pipe, flow, count=50)
    assert text in result.notes["fidelity"] and result.row["samples"] == int(text.split()[0])


def test_without_inception_weights_there_is_a_note_and_no_measure(offline, tmp_path, monkeypatch):
    """No sample is drawn, no module imported and no file fetched."""
    pipe = pipeline(splits())
    for name in [name for name in sys.modules if name.split(".")[0] == "torch_fidelity"]:
        monkeypatch.delitem(sys.modules, name)
    result = measure(pipe, None, name=INCEPTION, root=tmp_path)
    assert "torch_fidelity" not in sys.modules
    assert result.row == dict.fromkeys((*MEASURES, "samples")) | {"extractor": INCEPTION}
    line = result.notes["fidelity"]
    assert "Inception's weights are missing" in line and WEIGHTS in line and "\n" not in line
    assert str(tmp_path) not in line, "records name no places of a machine"


def test_inception_weights_are_found_in_both_places_and_verified(offline, tmp_path, monkeypatch):
    import hashlib

    content = b"weights"
    digest = hashlib.sha256(content).hexdigest()
    weights, cache = tmp_path / "weights", tmp_path / "torch" / "hub" / "checkpoints"
    for folder in (weights, cache):
        folder.mkdir(parents=True)
    (cache / WEIGHTS).write_bytes(content)
    assert find_weights(tmp_path, digest) == find_weights(None, digest) == cache / WEIGHTS
    (weights / WEIGHTS).write_bytes(content)
    assert find_weights(tmp_path, digest) == weights / WEIGHTS
    (weights / WEIGHTS).write_bytes(b"other")
    assert find_weights(tmp_path, digest) == cache / WEIGHTS
    (cache / WEIGHTS).unlink()
    with pytest.raises(Unavailable, match=r"weights/ has another file of this name, of SHA-256 d9298a10d1b0…"):
        find_weights(tmp_path, digest)


@pytest.mark.parametrize("name", ["vgg16", "no-such-network"])
def test_a_network_that_needs_a_download_is_not_used(name, offline):
    result = measure(pipeline(splits()), None, name=name)
    assert result.row["fid"] is None and f"'{name}'" in result.notes["fidelity"]


def trial(layer="conv1x1", baseline=False, **training):
    steps = {"steps": 2, "batch_size": 16, "evaluate_every": 2, "evaluation_batch": 9} | training
    layer, data = LayerRef(row=layer, layer=layer, baseline=baseline), DataRef(label="toy", name="toy", permute=1)
    return density_trial(layer, data, training=steps)


@pytest.fixture
def toy_data(monkeypatch):
    data = SimpleNamespace(loaded=lambda store, options, new: splits())
    monkeypatch.setattr(harness.kinds.density.run, "find_dataset", lambda name: data)


@pytest.mark.parametrize("layer", ["conv1x1", "maf"])
def test_the_measures_of_a_trial_are_deterministic(layer, toy_data, extractor, offline, tmp_path):
    settings = trial(layer, layer != "conv1x1", samples=SampleSettings(count=30, extractor=extractor))
    content = []
    for _ in range(2):
        record = run_density(settings, None, tmp_path, lambda done, text: None)
        assert record.status == "ok", record.reason
        row = record.rows[0]
        assert all(math.isfinite(row[name]) for name in MEASURES) and row["samples"] == 30
        assert row["fid"] > 0 and 0 <= row["precision"] <= 1
        row.pop("train_seconds")
        row.pop("audit_seconds")
        record.curves.pop("seconds")
        content.append(write_record(tmp_path, record).read_bytes())
        torch.rand(3)
    assert content[0] == content[1]


def test_samples_are_drawn_with_the_kept_weights(toy_data, extractor, tmp_path):
    """With averaged weights, the samples in the record's file give the same measures."""
    settings = trial(samples=SampleSettings(count=30, extractor=extractor), ema="all", ema_decay=0.5, learning_rate=0.1)
    record = run_density(settings, None, tmp_path, lambda done, text: None)
    flow = load_flow(settings, weights_path(settings, tmp_path))
    again = measure_fidelity(flow, pipeline(splits(), permute=1), settings.training.samples, 0, 9, None)
    assert again.row["fid"] > 0 and again.row.items() <= record.rows[0].items()


SUITE = """
suite: compared
kind: density
title: Compared
layers: {conv1x1: {}}
profiles:
  quick:
    training: {samples: {count: 64}}
    datasets: {digits: {}, WAVES}
"""


def test_samples_of_sequences_are_refused_at_their_setting(tmp_path):
    with pytest.raises(SuiteError, match=r":9:\d+: waveforms: training.samples compares images"):
        load_suite(write_suite(tmp_path, SUITE, "WAVES", "waveforms: {}"))
    suite = load_suite(write_suite(tmp_path, SUITE, "WAVES", "waveforms: {training: {samples: null}}"))
    plan = settle(suite, "quick", "cpu", settings=["datasets.digits.training.samples.count=32"]).plan()[0]
    assert [trial.training.samples for trial in plan.trials] == [SampleSettings(count=32), None]
    with pytest.raises(SuiteError, match=r"--set training.samples.count=32: waveforms"):
        settle(suite, "quick", "cpu", settings=["training.samples.count=32"]).plan()
