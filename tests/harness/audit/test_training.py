"""The audit takes a training step at the kept weights and names what is wrong with it."""

from functools import partial

import pytest
import torch
import variants
from torch import nn

from harness.audit.audit import audit
from harness.audit.training_step import derivative_faults, linearity_faults, step_weights
from harness.core.settings import TrainingSettings
from harness.evaluation.evaluation import evaluate, state_of
from harness.training.training import fit
from layers.conv1x1 import Conv1x1

TRAINING = TrainingSettings(steps=8, batch_size=20, evaluate_every=4, learning_rate=0.01)


class Dense(Conv1x1):
    """Sound: y = W x with a dense W."""

    def __init__(self, shape):
        super().__init__(shape, parameterisation="dense")

    def trained_matrix(self):
        return self.weight

    def applied(self, x, w):
        return torch.einsum("oc,ncp->nop", w, x.flatten(2)).reshape(x.shape)

    def forward(self, x):
        w = self.trained_matrix()
        return self.applied(x, w), self.positions * torch.linalg.slogdet(w).logabsdet


variant, output, started = (partial(make, Dense) for make in (variants.variant, variants.output, variants.started))


def detach_after_many_events(self, x, w):
    """Apply all events after the first 16 with detached weights."""
    return torch.cat([Dense.applied(self, x[:16], w), Dense.applied(self, x[16:], w.detach())])


def freeze(self):
    """Detach the weight after 6 calls in training."""
    self.calls = getattr(self, "calls", 0) + torch.is_grad_enabled()
    return self.weight.detach() if self.calls > 6 else self.weight


def freeze_for_good(self):
    """Freeze the weight after 6 calls in training."""
    self.calls = getattr(self, "calls", 0) + torch.is_grad_enabled()
    return self.weight.requires_grad_(self.calls <= 6)


def step(weight):
    """Move a weight along its gradient."""
    weight.data.add_(weight.grad, alpha=-0.1)


def train_frozen(self):
    """Train a weight that counts as frozen."""

    def learn(gradient):
        self.weight.data.sub_(0.01 * gradient)

    leaf = self.weight.detach().requires_grad_()
    leaf.register_hook(learn)
    return leaf if torch.is_grad_enabled() else self.weight


class Transposed(torch.autograd.Function):
    """Hand W g to the layers before, in place of W^T g."""

    @staticmethod
    def forward(ctx, w, x):
        ctx.save_for_backward(w, x)
        return torch.einsum("oc,ncp->nop", w, x)

    @staticmethod
    def backward(ctx, g):
        w, x = ctx.saved_tensors
        return torch.einsum("nop,ncp->oc", g, x), torch.einsum("oc,ncp->nop" if len(g) > 16 else "oc,nop->ncp", w, g)


class Clipped(torch.autograd.Function):
    """Limit small gradients, as those of a mean over events and entries are."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g if g.abs().max() > 0.005 else g.clamp(-1e-6, 1e-6)


class Closure(Dense):
    """Apply the weights of the original in a copy."""

    def __init__(self, shape):
        super().__init__(shape)
        self.trained_matrix = lambda: self.weight

    def applied(self, x, w):
        return super().applied(x, w.to(x.dtype))


@pytest.fixture
def trained(make_data, make_flow):
    """Return a function that trains a flow and audits it."""

    def run(layer, change=lambda flow: None, **settings):
        data = make_data((2, 8, 8))
        flow = make_flow(data, layer, noise=0.1, levels=1)
        training = TRAINING.model_copy(update=settings)
        fit(flow, data, training, 0, lambda done, text: None)
        change(flow)
        fresh = make_flow(data, layer, noise=0.1, levels=1)
        fresh.load_state_dict(flow.state_dict())
        evaluation = evaluate(flow, data, "test", 1, 8, 0)
        before, random = state_of(flow), torch.get_rng_state()
        result = audit(flow, data, evaluation, reload=lambda: fresh, training=training)
        assert torch.equal(torch.get_rng_state(), random), "the audit draws nothing from torch's generator"
        if layer in (Dense, Draws):
            after = state_of(flow)
            assert all(torch.equal(value, after[name]) for name, value in before.items()), "the weights are restored"
            assert not flow.training
        return result

    return run


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (
            output(lambda self, x, y, log_det: (y, log_det.detach())),
            "the gradient of log-det by 'weight' differs from finite differences: autograd sees no path",
        ),
        (variant(applied=detach_after_many_events), "the gradient by 'weight' in a training step of 20 events differs"),
        (
            output(lambda self, x, y, log_det: (y * 1.01 if self.training and len(x) > 16 else y, log_det)),
            "y in a training step of 20 events differs",
        ),
        (
            output(
                lambda self, x, y, log_det: (y, log_det / 2 if torch.is_grad_enabled() and len(x) > 16 else log_det)
            ),
            "the log-det in a training step of 20 events is",
        ),
        (variant(trained_matrix=freeze), "the gradient by 'weight' in a training step of 20 events"),
        (variant(trained_matrix=freeze_for_good), "the gradient by 'weight' in a training step of 20 events is"),
        (
            started(lambda self: self.weight.register_hook(torch.neg)),
            "the gradient by 'weight' in a training step of 20",
        ),
        (
            started(lambda self: self.weight.register_post_accumulate_grad_hook(step)),
            "'weight' moves during a training",
        ),
        (
            started(lambda self: self.weight.requires_grad_(False), trained_matrix=train_frozen),
            "'weight' moves during a",
        ),
        (
            variant(applied=lambda self, x, w: Transposed.apply(w, x.flatten(2)).reshape(x.shape)),
            "the gradient by x in a training step of 20 events differs",
        ),
        (variant(applied=lambda self, x, w: Dense.applied(self, Clipped.apply(x), w)), "the gradient by x in a"),
    ],
)
def test_a_wrong_training_step_of_a_layer_fails(layer, reason, trained):
    result = trained(layer)
    assert any(text.startswith(f"level0/step0/layer: {reason}") for text in result.reasons), result.reasons


def test_a_copy_that_applies_the_weights_of_the_original_fails(trained):
    reasons = trained(Closure).reasons
    assert any("y of a deep copy with other weights differs" in text for text in reasons), reasons


class Diagnosed(Dense):
    """Keep a mean of the events, which no result depends on."""

    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("mean", torch.zeros(self.channels))

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.flatten(2).mean((0, 2)), 0.1)
        return super().forward(x)


class Draws(Dense):
    """Draw a number from torch's generator in training, and do not use it."""

    def forward(self, x):
        if self.training:
            torch.rand(1)
        return super().forward(x)


class Unused(Dense):
    """Hold a parameter that stays zero, as no result depends on it: the diagonal of a matrix of one entry."""

    def __init__(self, shape):
        super().__init__(shape)
        self.unused = nn.Parameter(torch.zeros(1, 1))

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 0.0 * self.unused.sum()


@pytest.mark.parametrize("layer", [Dense, Draws, Diagnosed])
@pytest.mark.parametrize("settings", [{}, {"ema": "separate"}, {"clip_norm": 0.1, "layer_decay": 0.9}])
def test_a_sound_training_passes_and_leaves_no_trace(layer, settings, trained):
    result = trained(layer, **settings)
    assert result.verdict == "passed", result.reasons
    assert result.stepped_layers == result.linear_layers == 1


def test_a_parameter_that_stayed_zero_is_no_fault(trained):
    def zeroed(flow):
        with torch.no_grad():
            flow.levels[0].steps[0].layer.unused.zero_()

    assert trained(Unused, zeroed).verdict == "passed"


def halved(coupling):
    """Halve the gradient of a coupling's weights, which no step of a linear layer shows."""
    weight = next(coupling.parameters())
    weight.register_hook(lambda g: g / 2)


def drifting(coupling):
    """Let another weight move whenever a gradient arrives."""
    weight, other = list(coupling.parameters())[:2]
    other.requires_grad_(False)

    def drift(_):
        other.data.add_(0.1)

    weight.register_hook(drift)


def stepping(coupling):
    """Let a weight take a step without the optimiser."""
    next(coupling.parameters()).register_post_accumulate_grad_hook(step)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (halved, "flow: the gradient by 'levels.0.steps.0.coupling"),
        (drifting, "flow: 'levels.0.steps.0.coupling"),
        (stepping, "flow: the weights in a training step of 20 events are not what Adam computes"),
    ],
)
def test_a_wrong_training_step_of_the_flow_fails(spoil, reason, trained):
    result = trained(Conv1x1, lambda flow: spoil(flow.levels[0].steps[0].coupling))
    assert any(text.startswith(reason) for text in result.reasons), result.reasons


def test_a_gradient_that_differs_for_some_events_but_not_when_they_are_moved_a_little_is_no_fault(trained):
    """As that of a ReLU whose input is zero but for rounding: its slope in float32 is that of the other side."""
    seen = []

    def once(gradient):
        seen.append(gradient)
        return gradient / 2 if len(seen) == 1 else gradient

    result = trained(Conv1x1, lambda flow: next(flow.levels[0].steps[0].coupling.parameters()).register_hook(once))
    assert len(seen) == 2 and result.verdict == "passed", result.reasons


def test_the_rounding_of_a_saturated_coupling_is_no_fault(make_data, make_flow):
    """Its log-scale hardly depends on anything any more: 1 - tanh(s / 2)^2 is about 1e-7, the rounding of 1."""
    data = make_data((2, 64))
    flow = make_flow(data, Conv1x1, noise=0.1, levels=1, gate="bounded")
    with torch.no_grad():
        flow.levels[0].steps[0].coupling.net.log_scale[-1].bias.fill_(18.0)
    result = audit(flow, data, evaluate(flow, data, "test", 1, 8, 0), training=TRAINING)
    assert result.verdict == "passed", result.reasons


def test_a_log_det_that_is_the_parameter_itself_has_a_gradient():
    """The parameter is moved in place for the difference, and a log-det that is no copy of it would move along."""

    class Exponential(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def forward(self, x):
            return x * self.s.exp(), self.s

    x = torch.randn(3, 1, 1, dtype=torch.float64)
    assert list(derivative_faults(Exponential(), x, directions=2)) == []


def test_rounding_of_gradients_that_cancel_is_no_fault():
    """The gradients of single entries add up to a hundredth of their sizes; 1258 was called a fault."""
    for seed in range(1250, 1270):
        torch.manual_seed(seed)
        layer = Conv1x1((2, 1)).train()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        x = torch.randn(16, 2, 1)
        assert not list(linearity_faults(layer, x, step_weights(x), 1e-5)), seed
