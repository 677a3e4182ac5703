"""Evaluation: every point counts once, in the right unit, with the right error."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from harness.datasets.base import Splits
from harness.settings import DataRef
from harness.trials.evaluation import evaluate, generator
from harness.trials.pipeline import Pipeline

LEVELS = 16


class StandardNormal(nn.Module):
    """The identity flow: z = x; remembers how many events each pass had."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def log_prob(self, x):
        self.passes.append(len(x))
        return -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1)


class NotFinite(StandardNormal):
    """log p of the events whose first entry is negative is -inf."""

    def log_prob(self, x):
        return torch.where(x.flatten(1)[:, 0] < 0, -math.inf, super().log_prob(x))


def images(count=10, **options):
    draw = np.random.default_rng(0)
    train, validation, test = (draw.integers(0, LEVELS, (n, 1, 4, 4), dtype=np.uint8) for n in (4, 4, count))
    splits = Splits(train, validation, test, levels=LEVELS, description="random levels")
    return Pipeline(splits, DataRef(label="random", name="random", **options))


def test_exact_on_a_standard_normal():
    """Without noise the value has a closed form: a sum over lattice points."""
    pipeline = images(dequantise=False)
    result = evaluate(StandardNormal(), pipeline, "test", 1, 3, 0)
    x = 2 * pipeline.raw("test").double() / LEVELS - 1
    log_p = -0.5 * (x.square() + math.log(2 * math.pi)) + math.log(2 / LEVELS)
    points = -log_p.flatten(1).mean(1)
    assert result.bits_per_dim == pytest.approx(points.mean().item() / math.log(2), abs=1e-6)
    assert result.nats_per_dim == pytest.approx(points.mean().item() + math.log(2 / LEVELS), abs=1e-6)
    assert result.standard_error == pytest.approx(points.std().item() / math.sqrt(10) / math.log(2), rel=1e-4)
    assert result.draw_spread is None and result.non_finite == 0
    assert torch.allclose(result.values[0], points / math.log(2), atol=1e-6)


def test_the_last_batch_counts():
    flow, pipeline = StandardNormal(), images(dequantise=False)
    whole = evaluate(flow, pipeline, "test", 1, 100, 0)
    parts = evaluate(flow, pipeline, "test", 1, 4, 0)
    assert flow.passes == [10, 4, 4, 2]
    assert torch.equal(whole.values, parts.values)


def test_draws_are_independent_and_repeatable():
    one, same = (evaluate(StandardNormal(), images(), "test", 3, 4, seed=5) for _ in range(2))
    assert one.values.shape == (3, 10) and torch.equal(one.values, same.values)
    assert not torch.equal(one.values[0], one.values[1])
    assert one.draw_spread == pytest.approx(one.values.mean(1).std().item())
    assert one.standard_error == pytest.approx(one.values.mean(0).std().item() / math.sqrt(10))
    other = evaluate(StandardNormal(), images(), "test", 3, 4, seed=6)
    assert not torch.equal(one.values, other.values)


def test_values_that_are_not_finite_are_counted_and_not_dropped():
    pipeline = images(dequantise=False)
    bad = int((pipeline.raw("test")[:, 0, 0, 0] < LEVELS // 2).sum())
    assert 0 < bad < 10
    result = evaluate(NotFinite(), pipeline, "test", 1, 4, 0)
    assert result.non_finite == bad and result.values.shape == (1, 10)
    assert result.bits_per_dim == math.inf


def test_a_single_point_has_no_standard_error():
    assert math.isnan(evaluate(StandardNormal(), images(count=1), "test", 1, 4, 0).standard_error)


def test_evaluation_leaves_no_graph_and_takes_the_dtype_asked_for():
    class Double(StandardNormal):
        def log_prob(self, x):
            assert x.dtype == torch.float64 and not torch.is_grad_enabled()
            return super().log_prob(x)

    assert evaluate(Double(), images(), "test", 1, 4, 0, torch.float64).values.dtype == torch.float64


def test_generators_of_different_purposes_are_unrelated():
    device = torch.device("cpu")
    draws = {
        (seed, purpose): torch.rand(3, generator=generator(device, seed, purpose)).tolist()
        for seed in (0, 1)
        for purpose in ("one", "other")
    }
    assert len({tuple(values) for values in draws.values()}) == 4
    assert draws[0, "one"] == torch.rand(3, generator=generator(device, 0, "one")).tolist()
