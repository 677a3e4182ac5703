"""Training: convergence, selection by validation, and no use of the test split."""

import math
import time

import pytest
import torch
from torch import nn

from harness.core.errors import Diverged
from harness.core.settings import TrainingSettings
from harness.training.training import TrainingBatches, fit

SHAPE = (2, 4)
DIM = 8


class SyntheticPipeline:
    """Real-valued examples from a seeded generator; `prepare` adds noise of known variance."""

    unit = "nats_per_dim"
    dim = DIM
    device = torch.device("cpu")
    log_step = 0.0

    def __init__(self, splits, noise=0.0):
        self.splits = splits
        self.noise = noise
        self.prepared = []

    def raw(self, split):
        if split not in self.splits:
            raise AssertionError(f"training read the {split} split")
        return self.splits[split]

    def augment(self, raw, generator):
        return raw

    def prepare(self, raw, generator):
        x = raw + self.noise * torch.randn(raw.shape, generator=generator)
        self.prepared.append(x)
        return x, torch.zeros(len(raw))

    def measures(self, log_prob, log_det):
        nats = -(log_prob.double() + log_det) / DIM
        return {"bits_per_dim": nats / math.log(2), "nats_per_dim": nats}


class GaussianFlow(nn.Module):
    """z = (L + diag(exp s)) (x - m), exact for a Gaussian; construction uses `draws` extra random numbers."""

    def __init__(self, draws=0):
        super().__init__()
        torch.rand(draws)
        self.log_scale = nn.Parameter(torch.zeros(DIM))
        self.lower = nn.Parameter(torch.zeros(DIM, DIM))
        self.mean = nn.Parameter(torch.zeros(DIM))
        self.initialised_on = None

    def linear_layers(self):
        return []

    def initialise(self, x):
        assert not torch.is_grad_enabled()
        self.initialised_on = x
        self.mean.copy_(x.flatten(1).mean(0))

    def terms(self, x):
        centred = x.flatten(1) - self.mean
        z = centred * self.log_scale.exp() + centred @ self.lower.tril(-1).T
        prior = -0.5 * (z.square().sum(1) + DIM * math.log(2 * math.pi))
        return prior, self.log_scale.sum().expand(len(x))

    def log_prob(self, x):
        return sum(self.terms(x))


def correlated(count, seed=0):
    """Return examples of a Gaussian with correlated neighbouring entries, and its entropy per dimension."""
    mixing = torch.eye(DIM) + 0.8 * torch.diag(torch.ones(DIM - 1), -1)
    mixing = 0.5 * mixing
    noise = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    entropy = 0.5 * (math.log(2 * math.pi) + 1) + torch.linalg.slogdet(mixing)[1].item() / DIM
    return (noise @ mixing.T).reshape(count, *SHAPE) + 3.0, entropy


def pipeline(count=400, noise=0.0):
    train, validation = correlated(count)[0], correlated(100, seed=1)[0]
    return SyntheticPipeline({"train": train, "validation": validation}, noise)


def quiet(fraction, text):
    assert 0 <= fraction <= 1 and text


def test_reaches_the_entropy_of_a_gaussian():
    train, entropy = correlated(4000)
    data = SyntheticPipeline({"train": train, "validation": correlated(4000, seed=1)[0]})
    settings = TrainingSettings(steps=400, batch_size=256, learning_rate=2e-2, decay=0.99, evaluate_every=50)
    flow = GaussianFlow()
    result = fit(flow, data, settings, 0, quiet)
    assert result.curves["step"] == list(range(50, 401, 50))
    assert min(result.curves["validation"]) == pytest.approx(entropy, abs=0.02)
    assert result.curves["train"][-1] == pytest.approx(entropy, abs=0.05)
    assert -flow.log_prob(data.raw("validation")).mean().item() / DIM == pytest.approx(entropy, abs=0.02)
    assert result.train_seconds > 0 and result.steps_done == 400 and not result.stopped_early


def test_curves_of_images_are_in_bits_per_dim():
    nats, bits = pipeline(), pipeline()
    bits.unit = "bits_per_dim"
    settings = TrainingSettings(steps=3, batch_size=16, evaluate_every=3)
    curves = [fit(GaussianFlow(), data, settings, 0, quiet).curves for data in (nats, bits)]
    for name in ("train", "validation"):
        assert curves[1][name][0] == pytest.approx(curves[0][name][0] / math.log(2))


def test_trials_with_the_same_seed_have_the_same_batches_and_noise():
    settings = TrainingSettings(steps=7, batch_size=100, evaluate_every=3)
    seen = []
    for seed, draws in ((0, 0), (0, 1000), (1, 0)):
        data = pipeline(count=250, noise=0.1)
        torch.manual_seed(draws)
        fit(GaussianFlow(draws), data, settings, seed, quiet)
        seen.append(data.prepared)
    assert len(seen[0]) == len(seen[1])
    assert all(torch.equal(a, b) for a, b in zip(seen[0], seen[1], strict=True))
    assert not torch.equal(seen[0][0], seen[2][0])


def test_initialisation_uses_the_first_training_batch():
    data, flow = pipeline(noise=0.1), GaussianFlow()
    fit(flow, data, TrainingSettings(steps=1, batch_size=32), 0, quiet)
    assert flow.initialised_on is data.prepared[0]
    first = next(TrainingBatches(pipeline(noise=0.1), 32, 0))[0]
    assert torch.equal(first, flow.initialised_on)


def test_every_example_is_used_equally_often_with_fresh_noise():
    raw = torch.arange(10.0).reshape(10, 1, 1).expand(10, *SHAPE)
    batches = TrainingBatches(SyntheticPipeline({"train": raw}), 4, 0)
    points = torch.cat([next(batches)[0][:, 0, 0] for _ in range(5)])
    assert sorted(points[:10].tolist()) == sorted(points[10:].tolist()) == list(range(10))
    assert points[:10].tolist() != points[10:].tolist()
    noisy = TrainingBatches(SyntheticPipeline({"train": raw[:1]}, noise=1.0), 1, 0)
    assert not torch.equal(next(noisy)[0], next(noisy)[0])


def test_a_batch_size_above_the_data_uses_all_of_them():
    x, _ = next(TrainingBatches(pipeline(count=5), 64, 0))
    assert len(x) == 5 and len(x.flatten(1).unique(dim=0)) == 5


def test_validation_noise_is_the_same_each_time():
    data = pipeline(noise=0.3)
    fit(GaussianFlow(), data, TrainingSettings(steps=4, batch_size=8, evaluate_every=2), 0, quiet)
    held_out = [x for x in data.prepared if len(x) == 100]
    assert len(held_out) == 2 and torch.equal(*held_out)
    assert not torch.equal(held_out[0], data.raw("validation"))


def over_fitting():
    """Return training examples far from the validation ones: all but the first steps make validation worse."""
    train = correlated(16)[0]
    validation = correlated(100, seed=1)[0]
    return SyntheticPipeline({"train": train, "validation": validation})


def test_the_best_validation_weights_are_kept():
    data, flow = over_fitting(), GaussianFlow()
    settings = TrainingSettings(steps=300, batch_size=16, learning_rate=2e-2, evaluate_every=10)
    result = fit(flow, data, settings, 0, quiet)
    validation = result.curves["validation"]
    assert validation[-1] > min(validation) + 0.1, "the toy no longer over-fits"
    assert result.best_step == result.curves["step"][validation.index(min(validation))] < 300
    now = -flow.log_prob(data.raw("validation")).mean().item() / DIM
    assert now == pytest.approx(min(validation), abs=1e-5)


def test_patience_stops_after_the_given_number_of_evaluations_without_improvement():
    settings = TrainingSettings(steps=300, batch_size=16, learning_rate=2e-2, evaluate_every=10, patience=3)
    result = fit(GaussianFlow(), over_fitting(), settings, 0, quiet)
    validation = result.curves["validation"]
    best = validation.index(min(validation))
    assert result.stopped_early and len(validation) == best + 1 + 3
    assert result.steps_done == result.curves["step"][-1] == 10 * len(validation)


class SlowToEvaluate(GaussianFlow):
    def terms(self, x):
        if not torch.is_grad_enabled():
            time.sleep(0.5)
        return super().terms(x)


def test_training_time_excludes_evaluation():
    settings = TrainingSettings(steps=4, batch_size=8, evaluate_every=2)
    result = fit(SlowToEvaluate(), pipeline(), settings, 0, quiet)
    assert 0 < result.train_seconds < 0.5


class FailsLater(GaussianFlow):
    """Return `value` as log p in training from step `at` on, or always in evaluation."""

    def __init__(self, at=None, value=math.nan):
        super().__init__()
        self.at, self.value, self.calls = at, value, 0

    def terms(self, x):
        self.calls += torch.is_grad_enabled()
        fails = self.calls >= self.at if self.at is not None else not torch.is_grad_enabled()
        prior, log_det = super().terms(x)
        return prior + (self.value if fails else 0.0), log_det


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_loss_is_reported_with_its_step(value):
    settings = TrainingSettings(steps=20, batch_size=16, evaluate_every=5)
    with pytest.raises(Diverged, match="at step 8") as caught:
        fit(FailsLater(at=8, value=value), pipeline(), settings, 0, quiet)
    curves = caught.value.curves
    assert curves["step"] == [5, 10]
    assert math.isfinite(curves["train"][0]) and curves["train"][1] is None


def test_a_non_finite_validation_value_is_divergence():
    settings = TrainingSettings(steps=20, batch_size=16, evaluate_every=5)
    with pytest.raises(Diverged, match="validation likelihood is not finite at step 5 for 100 of 100"):
        fit(FailsLater(), pipeline(), settings, 0, quiet)


def test_training_uses_train_mode_and_validation_uses_eval_mode():
    """A layer that hardens is another map in eval(), and validation must select by the map that is evaluated."""

    modes = set()

    class Watched(GaussianFlow):
        def terms(self, x):
            modes.add((self.training, torch.is_grad_enabled()))
            return super().terms(x)

    flow = Watched()
    fit(flow, pipeline(), TrainingSettings(steps=6, batch_size=50, evaluate_every=2), 0, lambda *_: None)
    assert modes == {(True, True), (False, False)}
    assert not flow.training
