"""Evaluation: every example counts once, in the correct unit, with the correct standard error."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from harness.core.settings import DataRef
from harness.datasets.base import Splits
from harness.evaluation.evaluation import Evaluation, Parts, evaluate, generator
from harness.pipeline.pipeline import Pipeline

LEVELS = 16


class StandardNormal(nn.Module):
    """The identity flow, z = x; records the batch size of each pass."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def terms(self, x):
        self.passes.append(len(x))
        return -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1), torch.zeros(len(x))


class NotFinite(StandardNormal):
    """A flow with log p = -inf for examples whose first entry is negative."""

    def terms(self, x):
        prior, log_det = super().terms(x)
        return torch.where(x.flatten(1)[:, 0] < 0, -math.inf, prior), log_det


class Widened(nn.Module):
    """z = 3 x, whose log-det is D log 3."""

    def terms(self, x):
        z = 3 * x.flatten(1)
        prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
        return prior, torch.full((len(x),), z.shape[1] * math.log(3))


def images(count=10, **options):
    draw = np.random.default_rng(0)
    train, validation, test = (draw.integers(0, LEVELS, (n, 1, 4, 4), dtype=np.uint8) for n in (4, 4, count))
    splits = Splits(train, validation, test, levels=LEVELS, description="random levels")
    return Pipeline(splits, DataRef(label="random", name="random", **options))


def test_exact_on_a_standard_normal_with_the_last_minibatch():
    """Without noise the value has a closed form: a sum over lattice points."""
    pipeline = images(dequantise=False)
    result = evaluate(StandardNormal(), pipeline, "test", 1, 3, 0)
    x = 2 * pipeline.raw("test")[:].double() / LEVELS - 1
    log_p = -0.5 * (x.square() + math.log(2 * math.pi)) + math.log(2 / LEVELS)
    points = -log_p.flatten(1).mean(1)
    assert result.bits_per_dim == pytest.approx(points.mean().item() / math.log(2), abs=1e-6)
    assert result.nats_per_dim == pytest.approx(points.mean().item() + math.log(2 / LEVELS), abs=1e-6)
    assert result.standard_error == pytest.approx(points.std().item() / math.sqrt(10) / math.log(2), rel=1e-4)
    assert result.draw_spread is None and result.non_finite == 0
    assert math.isnan(evaluate(StandardNormal(), images(count=1), "test", 1, 4, 0).standard_error)
    assert torch.allclose(result.values[0], points / math.log(2), atol=1e-6)
    flow, pipeline = StandardNormal(), images(dequantise=False)
    whole = evaluate(flow, pipeline, "test", 1, 100, 0)
    parts = evaluate(flow, pipeline, "test", 1, 4, 0)
    assert flow.passes == [10, 4, 4, 2]
    assert torch.equal(whole.values, parts.values)


def test_draws_are_independent_and_repeatable():
    first, repeated = (evaluate(StandardNormal(), images(), "test", 3, 4, seed=5) for _ in range(2))
    assert first.values.shape == (3, 10) and torch.equal(first.values, repeated.values)
    assert not torch.equal(first.values[0], first.values[1])
    assert first.draw_spread == pytest.approx(first.values.mean(1).std().item())
    assert first.standard_error == pytest.approx(first.values.mean(0).std().item() / math.sqrt(10))
    reseeded = evaluate(StandardNormal(), images(), "test", 3, 4, seed=6)
    assert not torch.equal(first.values, reseeded.values)


def test_values_that_are_not_finite_are_counted_and_the_worst_event_may_be_one():
    pipeline = images(dequantise=False)
    bad = int((pipeline.raw("test")[:][:, 0, 0, 0] < LEVELS // 2).sum())
    assert 0 < bad < 10
    result = evaluate(NotFinite(), pipeline, "test", 1, 4, 0)
    assert result.non_finite == bad and result.values.shape == (1, 10)
    assert result.bits_per_dim == math.inf
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0, 90.0], [3.0, 2.0, 9.0, 4.0, 110.0]], dtype=torch.float64)
    none = torch.zeros(0)
    parts = Parts(0.0, 0.0, 0.0)
    result = Evaluation(22.2, 0.0, 0.0, None, values, 0.0, parts, None, "test", 5, 0, torch.float32, none, none, ())
    assert (result.median, result.worst) == (4.0, 100.0), "draws are averaged first"
    for bad, median, worst in ((math.inf, 4.0, math.inf), (math.nan, math.nan, math.nan)):
        values[0, 4] = bad
        assert (result.median, result.worst) == pytest.approx((median, worst), nan_ok=True)


@pytest.mark.parametrize("preprocessing", ["scale", "logit"])
def test_the_parts_of_a_likelihood_sum_to_it(preprocessing):
    pipeline = images(preprocessing=preprocessing)
    result = evaluate(Widened(), pipeline, "test", 3, 4, 0)
    parts = result.parts
    assert parts.prior + parts.log_det + parts.preprocessing == pytest.approx(result.nats_per_dim, abs=1e-12)
    assert parts.log_det == pytest.approx(-math.log(3))
    noise = generator(torch.device("cpu"), 0, "evaluation noise of test")
    passes = [pipeline.prepare(part, noise) for part in pipeline.raw("test")[:].split(4) * 3]
    x, log_det = (torch.cat(values) for values in zip(*passes, strict=True))
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(3 * x.double()).mean().item()
    assert parts.prior == pytest.approx(-prior, abs=1e-6)
    assert parts.preprocessing == pytest.approx(math.log(2 / LEVELS) - log_det.mean().item() / 16, abs=1e-9)
    assert (preprocessing == "scale") == (abs(parts.preprocessing) < 1e-12)


def test_importance_weighting_is_the_mean_of_the_densities_and_approaches_the_likelihood():
    """For each example the log of the mean of p over the draws, in both units; it is at least the mean of the logs."""
    pipeline = images()
    result = evaluate(Widened(), pipeline, "test", 4, 3, 0)
    log_p = -result.values * 16 * math.log(2)
    expected = -(log_p.exp().mean(0).log() / 16 / math.log(2)).mean().item()
    assert result.importance_weighted == pytest.approx(expected, abs=1e-9)
    assert result.importance_weighted < result.bits_per_dim - 1e-3
    pipeline.unit = "nats_per_dim"
    nats = evaluate(Widened(), pipeline, "test", 4, 3, 0).importance_weighted
    assert nats == pytest.approx(expected * math.log(2) + math.log(2 / LEVELS), abs=1e-9)
    result = evaluate(Widened(), images(), "test", 1, 3, 0)
    assert result.importance_weighted == pytest.approx(result.bits_per_dim, abs=1e-12)
    # On one entry the probability of each level is known; only the importance-weighted bound approaches it.
    values = np.arange(LEVELS, dtype=np.uint8).reshape(-1, 1, 1, 1)
    splits = Splits(values, values, values, levels=LEVELS, description="every level")
    pipeline = Pipeline(splits, DataRef(label="levels", name="levels"))
    result = evaluate(Widened(), pipeline, "test", 4000, 4000, 0)
    edges = 3 * (2 * torch.arange(LEVELS + 1, dtype=torch.float64) / LEVELS - 1)
    cumulative = torch.distributions.Normal(0.0, 1.0).cdf(edges)
    truth = -(cumulative[1:] - cumulative[:-1]).log2().mean().item()
    assert result.importance_weighted == pytest.approx(truth, abs=2e-3)
    assert result.bits_per_dim > truth + 1e-2


def test_equal_events_count_as_one_in_the_standard_error():
    def error(test):
        splits = Splits(test, test, test, 256, "made up")
        return evaluate(StandardNormal(), Pipeline(splits, DataRef(label="d", name="d")), "test", 1, 4, 0)

    events = np.random.default_rng(0).integers(0, 256, (12, 1, 4, 4), dtype=np.uint8)
    once, often = error(events), error(np.repeat(events, 25, axis=0))
    assert often.standard_error == pytest.approx(once.standard_error, rel=0.05)
    means = torch.tensor([values.mean() for values in often.values[0].split(25)])
    assert often.standard_error == pytest.approx(means.std().item() / math.sqrt(12))
    assert math.isnan(error(np.repeat(events[:1], 9, axis=0)).standard_error)


def test_generators_of_different_purposes_are_independent():
    device = torch.device("cpu")
    draws = {
        (seed, purpose): torch.rand(3, generator=generator(device, seed, purpose)).tolist()
        for seed in (0, 1)
        for purpose in ("one", "other")
    }
    assert len({tuple(values) for values in draws.values()}) == 4
    assert draws[0, "one"] == torch.rand(3, generator=generator(device, 0, "one")).tolist()

    class Double(StandardNormal):
        def terms(self, x):
            assert x.dtype == torch.float64 and not torch.is_grad_enabled()
            return super().terms(x)

    assert evaluate(Double(), images(), "test", 1, 4, 0, torch.float64).values.dtype == torch.float64
