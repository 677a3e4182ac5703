"""Training and its steps: convergence, selection by validation, averages and rates, compared with explicit loops."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim import Adam

from flows import Glow
from harness.core.errors import Diverged
from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
from harness.pipeline.models import build_flow
from harness.training.training import TrainingBatches, fit
from harness.training.updates import Updates, layer_learning_rate, layers_under_test, learning_rate, smallest_log_det

DIM = 3
SHAPE = (DIM, 1)


class Linear(nn.Module):
    shape, dim = SHAPE, DIM

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(DIM))

    def forward(self, x):
        return (x.flatten(1) @ self.weight.T).reshape(x.shape), torch.linalg.slogdet(self.weight)[1]


class Toy(nn.Module):
    """z = exp(s) * W (x - m); W is the layer under test, m and s are the backbone. `draws`: random numbers used."""

    def __init__(self, draws=0):
        super().__init__()
        torch.rand(draws)
        self.mean = nn.Parameter(torch.zeros(DIM))
        self.layer = Linear()
        self.log_scale = nn.Parameter(torch.zeros(DIM))

    def initialise(self, x):
        assert not torch.is_grad_enabled()
        self.initialised_on = x
        self.mean.copy_(x.flatten(1).mean(0))

    def linear_layers(self):
        return [("level0/step0/layer", self.layer)]

    def terms(self, x):
        z, log_det = self.layer(x - self.mean[:, None])
        z = z.flatten(1) * self.log_scale.exp()
        prior = -0.5 * (z.square().sum(1) + DIM * math.log(2 * math.pi))
        return prior, (log_det + self.log_scale.sum()).expand(len(x))

    def log_prob(self, x):
        return sum(self.terms(x))


class Data:
    """Real-valued examples; `prepare` adds noise of known variance."""

    unit = "nats_per_dim"
    dim = DIM
    device = torch.device("cpu")
    log_step = 0.0

    def __init__(self, train, validation, noise=0.0):
        self.splits = {"train": train, "validation": validation}  # there is no test split to read
        self.noise = noise
        self.prepared = []

    def raw(self, split):
        values = self.splits[split]
        values.groups = torch.arange(len(values))  # of equal events: none are
        return values

    def augment(self, raw, generator):
        return raw

    def prepare(self, raw, generator):
        x = raw + self.noise * torch.randn(raw.shape, generator=generator)
        self.prepared.append(x)
        return x, torch.zeros(len(raw))

    def measures(self, log_prob, log_det):
        nats = -(log_prob.double() + log_det) / DIM
        return {"bits_per_dim": nats / math.log(2), "nats_per_dim": nats}


def correlated(count, seed=0):
    """Return examples of a Gaussian, and its entropy per dimension."""
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.7, 0.4, 0.0], [-0.5, 0.3, 2.0]])
    noise = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    entropy = 0.5 * (math.log(2 * math.pi) + 1) + torch.linalg.slogdet(mixing)[1].item() / DIM
    return (noise @ mixing.T + 1).reshape(count, *SHAPE), entropy


def pipeline(count=400, noise=0.0):
    return Data(correlated(count)[0], correlated(100, seed=1)[0], noise)


def quiet(fraction, text):
    assert 0 <= fraction <= 1 and text


def test_reaches_the_entropy_of_a_gaussian():
    train, entropy = correlated(4000)
    data = Data(train, correlated(4000, seed=1)[0])
    settings = TrainingSettings(steps=400, batch_size=256, learning_rate=2e-2, decay=0.99, evaluate_every=50)
    flow = Toy()
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
    curves = [fit(Toy(), data, settings, 0, quiet).curves for data in (nats, bits)]
    for name in ("train", "validation"):
        assert curves[1][name][0] == pytest.approx(curves[0][name][0] / math.log(2))


def test_trials_with_the_same_seed_have_the_same_batches_and_noise():
    settings = TrainingSettings(steps=7, batch_size=100, evaluate_every=3)
    seen = []
    for seed, draws in ((0, 0), (0, 1000), (1, 0)):
        data = pipeline(count=250, noise=0.1)
        torch.manual_seed(draws)
        fit(Toy(draws), data, settings, seed, quiet)
        seen.append(data.prepared)
    assert len(seen[0]) == len(seen[1])
    assert all(torch.equal(a, b) for a, b in zip(seen[0], seen[1], strict=True))
    assert not torch.equal(seen[0][0], seen[2][0])


def test_every_example_is_used_equally_often_with_fresh_noise():
    raw = torch.arange(10.0).reshape(10, 1, 1).expand(10, *SHAPE)
    batches = TrainingBatches(Data(raw, raw), 4, 0)
    points = torch.cat([next(batches)[0][:, 0, 0] for _ in range(5)])
    assert sorted(points[:10].tolist()) == sorted(points[10:].tolist()) == list(range(10))
    assert points[:10].tolist() != points[10:].tolist()
    noisy = TrainingBatches(Data(raw[:1], raw, noise=1.0), 1, 0)
    assert not torch.equal(next(noisy)[0], next(noisy)[0])
    data, flow = pipeline(noise=0.1), Toy()
    fit(flow, data, TrainingSettings(steps=1, batch_size=32), 0, quiet)
    assert flow.initialised_on is data.prepared[0]
    first = next(TrainingBatches(pipeline(noise=0.1), 32, 0))[0]
    assert torch.equal(first, flow.initialised_on)


OVER_FITTING = 6  # so few examples that all but the first steps make validation worse


def test_with_a_batch_beyond_the_examples_every_step_is_an_epoch():
    settings = TrainingSettings(learning_rate=1.0, warmup=2, layer_decay=0.9, batch_size=30)
    assert layer_learning_rate(settings, 4, 10) == pytest.approx(0.9**3)
    assert learning_rate(settings.model_copy(update={"warmup": 0, "decay": 0.5}), 1) == 0.5


def test_the_best_validation_weights_are_kept_and_patience_stops():
    data, flow = pipeline(OVER_FITTING), Toy()
    settings = TrainingSettings(steps=300, batch_size=16, learning_rate=2e-2, evaluate_every=10)
    result = fit(flow, data, settings, 0, quiet)
    validation = result.curves["validation"]
    assert validation[-1] > min(validation) + 0.1, "the toy no longer over-fits"
    assert result.best_step == result.curves["step"][validation.index(min(validation))] < 300
    now = -flow.log_prob(data.raw("validation")).mean().item() / DIM
    assert now == pytest.approx(min(validation), abs=1e-5)
    settings = TrainingSettings(steps=300, batch_size=16, learning_rate=2e-2, evaluate_every=10, patience=3)
    result = fit(Toy(), pipeline(OVER_FITTING), settings, 0, quiet)
    validation = result.curves["validation"]
    best = validation.index(min(validation))
    assert result.stopped_early and len(validation) == best + 1 + 3
    assert result.steps_done == result.curves["step"][-1] == 10 * len(validation)


class FailsLater(Toy):
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


def test_training_uses_train_mode_validation_eval_mode_and_the_same_noise():
    """A layer that hardens is another map in eval(), and validation must select by the map that is evaluated."""

    modes = set()

    class Watched(Toy):
        def terms(self, x):
            modes.add((self.training, torch.is_grad_enabled()))
            return super().terms(x)

    flow = Watched()
    fit(flow, pipeline(), TrainingSettings(steps=6, batch_size=50, evaluate_every=2), 0, lambda *_: None)
    assert modes == {(True, True), (False, False)}
    assert not flow.training
    data = pipeline(noise=0.3)
    fit(Toy(), data, TrainingSettings(steps=4, batch_size=8, evaluate_every=2), 0, quiet)
    held_out = [x for x in data.prepared if len(x) == 100]
    assert len(held_out) == 2 and torch.equal(*held_out)
    assert not torch.equal(held_out[0], data.raw("validation"))


def loss(mean, weight, log_scale, x):
    """Return -log p(x) / D of the toy flow from its formula."""
    z = ((x.flatten(1) - mean) @ weight.T) * log_scale.exp()
    log_det = torch.linalg.slogdet(weight)[1] + log_scale.sum()
    return ((0.5 * z.square().sum(1) + 0.5 * DIM * math.log(2 * math.pi)) - log_det).mean() / DIM


def step(adam, gradients, rate):
    for weight, gradient in zip(adam.param_groups[0]["params"], gradients, strict=True):
        weight.grad = gradient
    adam.param_groups[0]["lr"] = rate
    adam.step()


SETTINGS = TrainingSettings(
    steps=9, batch_size=16, evaluate_every=9, learning_rate=5e-2, warmup=2, decay=0.9, layer_decay=0.5, ema_decay=0.8
)


def train(mode):
    data, flow = pipeline(count=40), Toy()
    result = fit(flow, data, SETTINGS.model_copy(update={"ema": mode}), 0, quiet)
    batches = [x for x in data.prepared if len(x) == SETTINGS.batch_size]
    return flow, result, batches


def start(batches):
    mean = batches[0].flatten(1).mean(0).requires_grad_()
    return mean, torch.eye(DIM).requires_grad_(), torch.zeros(DIM).requires_grad_()


def rates(step):
    """Return the rates (backbone, layer): 40 examples in minibatches of 16, so epochs end within steps 3, 5 and 8."""
    ramp = 0.5 if step == 1 else 1.0
    epoch = [0, 0, 0, 1, 1, 2, 2, 2, 3][step - 1]
    return 5e-2 * ramp * 0.9 ** max(0, step - 2), 5e-2 * ramp * 0.5**epoch


def test_separate_averages_step_by_step():
    """Step the backbone with averaged layers, then the live layers in the new backbone, then average."""
    flow, result, batches = train("separate")
    mean, live, log_scale = start(batches)
    average = live.detach().clone()
    backbone, layers = Adam([mean, log_scale]), Adam([live])
    for number, x in enumerate(batches, start=1):
        backbone_rate, layer_rate = rates(number)
        step(backbone, torch.autograd.grad(loss(mean, average, log_scale, x), [mean, log_scale]), backbone_rate)
        step(layers, torch.autograd.grad(loss(mean, live, log_scale, x), [live]), layer_rate)
        average = 0.8 * average + 0.2 * live.detach()
    torch.testing.assert_close(flow.mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flow.log_scale, log_scale, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flow.layer.weight.detach(), average, rtol=1e-4, atol=1e-6)
    assert (average - live).abs().max() > 1e-2, "the toy no longer tells an average from its live weights"
    assert result.passes == 2 * SETTINGS.steps


@pytest.mark.parametrize("mode", ["none", "all"])
def test_one_pass_step_by_step(mode):
    flow, result, batches = train(mode)
    weights = start(batches)
    averages = [weight.detach().clone() for weight in weights]
    adams = [Adam([weight]) for weight in weights]
    for number, x in enumerate(batches, start=1):
        backbone_rate, layer_rate = rates(number)
        gradients = torch.autograd.grad(loss(*weights, x), weights)
        for adam, gradient, rate in zip(adams, gradients, (backbone_rate, layer_rate, backbone_rate), strict=True):
            step(adam, [gradient], rate)
        averages = [0.8 * a + 0.2 * w.detach() for a, w in zip(averages, weights, strict=True)]
    expected = averages if mode == "all" else weights
    for value, truth in zip((flow.mean, flow.layer.weight, flow.log_scale), expected, strict=True):
        torch.testing.assert_close(value.detach(), truth.detach(), rtol=1e-4, atol=1e-6)
    assert result.passes == SETTINGS.steps


def test_passes_are_clipped_measured_before_their_step_and_one_without_weights():
    """Adam's first moment shows the clipped gradient; its steps do not."""
    flow = Toy()
    updates = Updates(flow, TrainingSettings(ema="separate", clip_norm=1e-3), 100)
    updates.step(lambda model: {"nats_per_dim": model.mean.sum() + 5 * model.layer.weight.sum()}, 1)
    for each in updates._passes:
        moments = [state["exp_avg"] for state in each.optimiser.state.values()]
        assert torch.cat(moments).norm().item() == pytest.approx(1e-4, rel=1e-3)
    # The measures are those of the first pass, whose layers under "separate" are the averages.
    flow = Toy()
    updates = Updates(flow, TrainingSettings(ema="separate", ema_decay=0.5, learning_rate=0.4, warmup=4), 100)
    seen = []
    for number in (1, 2):
        measures = updates.step(lambda model: {"nats_per_dim": model.layer.weight[0, 0] + 0.0}, number)
        seen.append(measures["nats_per_dim"].item())
    assert seen == pytest.approx([1.0, 0.95])
    flow = Toy()
    flow.layer.weight.requires_grad_(False)
    updates = Updates(flow, TrainingSettings(ema="separate"), 100)
    assert updates.passes == 1
    updates.step(lambda model: {"nats_per_dim": model.log_prob(torch.ones(2, DIM, 1)).mean()}, 1)
    assert torch.equal(flow.layer.weight, torch.eye(DIM))


@pytest.mark.parametrize("mode", ["all", "separate"])
def test_frozen_whole_numbers_are_not_averaged(mode):
    flow = Toy()
    flow.layer.order = nn.Parameter(torch.arange(DIM), requires_grad=False)
    Updates(flow, TrainingSettings(ema=mode), 100).step(lambda model: {"nats_per_dim": model.layer.weight.sum()}, 1)
    assert flow.layer.order.tolist() == [0, 1, 2]


def glow(layer="butterfly"):
    flow = FlowSettings(levels=2, steps=2, width=4)
    return build_flow((2, 4, 4), LayerRef(row=layer, layer=layer), flow, 0)


@pytest.mark.parametrize("layer", ["butterfly", "conv1x1"])
def test_the_layers_under_test_of_a_glow(layer):
    """Every step's layer and no mixer, even if the layer is a 1x1; the groups contain all weights."""
    flow = glow(layer)
    assert isinstance(flow, Glow)
    layers = layers_under_test(flow)
    assert [path for path, _ in layers] == [f"level{level}/step{step}/layer" for level in (0, 1) for step in (0, 1)]
    assert {module.registered_name for _, module in layers} == {layer}


def test_separate_shares_the_backbone_of_a_glow():
    """Including weight normalisation and buffers; the live layers are initially equal copies."""
    flow = glow()
    updates = Updates(flow, TrainingSettings(ema="separate"), 100)
    first, live = (each.model for each in updates._passes)
    assert first is flow and live is not flow
    names = dict(flow.named_parameters())
    assert names.keys() == dict(live.named_parameters()).keys()
    copied = {name for name, weight in live.named_parameters() if weight is not names[name]}
    assert copied == {name for name in names if ".layer." in name}
    assert all(torch.equal(live.get_parameter(name), names[name]) for name in copied)
    x = torch.rand(4, 2, 4, 4)
    before = {name: weight.detach().clone() for name, weight in names.items()}
    updates.step(lambda model: {"nats_per_dim": -model.log_prob(x) / 32}, 1)
    assert all(not torch.equal(before[name], names[name]) for name in copied)


def test_a_singular_average_is_divergence_that_names_the_layer():
    """The average of two rotations is zero: the live layer is always invertible, its average is not."""

    class Turning(Toy):
        def log_prob(self, x):
            if torch.is_grad_enabled():
                self.layer.weight.data.copy_(-torch.eye(DIM))
            return super().log_prob(x).detach() + 0 * self.mean.sum() + 0 * self.layer.weight.sum()

    settings = TrainingSettings(steps=4, batch_size=16, evaluate_every=1, ema="all", ema_decay=0.5, learning_rate=1e-9)
    message = r"averaged weights of level0/step0/layer are singular at step 1: .* -inf"
    with pytest.raises(Diverged, match=message) as caught:
        fit(Turning(), pipeline(count=40), settings, 0, quiet)
    assert caught.value.curves["average_log_det"] == [None]


def test_the_average_is_watched():
    for mode, watched in (("none", False), ("all", True), ("separate", True)):
        curves = train(mode)[1].curves
        assert ("average_log_det" in curves) is watched
        if watched:
            assert len(curves["average_log_det"]) == len(curves["step"])
    flow = train("separate")[0]
    expected = torch.linalg.slogdet(flow.layer.weight)[1].item() / DIM
    assert smallest_log_det(flow) == ("level0/step0/layer", pytest.approx(expected))
    assert curves["average_log_det"][-1] == pytest.approx(expected)


FIRST_STEPS = """
import importlib, sys, torch
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.execution.local.process import PRELOAD, PRELOAD_FOR_TRAINING
from harness.pipeline.models import build_flow
from harness.training.updates import Updates

for name in (*PRELOAD, PRELOAD_FOR_TRAINING):
    importlib.import_module(name)
flow = build_flow((2, 4, 4), LayerRef(row="conv1x1", layer="conv1x1"), FlowSettings(levels=1, steps=1, width=4), 0)
x = torch.randn(8, 2, 4, 4)
flow.initialise(x)
there = set(sys.modules)
for ema in ("none", "all", "separate"):
    updates = Updates(flow, TrainingSettings(ema=ema, clip_norm=1.0), 8)
    updates.step(lambda model: {"nats_per_dim": -model.log_prob(x)}, 1)
print(len(set(sys.modules) - there), [name for name in ("torchvision", "sklearn", "pandas") if name in sys.modules])

from harness.core.flags import configure
from harness.kinds.density.trial import DensityTrial
parts = {"data": DataRef(label="d", name="digits"), "layer": LayerRef(row="b", layer="butterfly")}
configure(DensityTrial(suite="s", profile="smoke", flow=FlowSettings(), training=TrainingSettings(), seed=0, **parts))
assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cuda.matmul.allow_tf32
assert not torch.empty(1000).isnan().all()
"""


@pytest.mark.system
def test_the_first_training_step_imports_nothing_and_new_memory_is_not_initialised():
    """Modules are imported by the fork server, once per run instead of once per trial; kernels overwrite the memory."""
    done = subprocess.run([sys.executable, "-c", FIRST_STEPS], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"
