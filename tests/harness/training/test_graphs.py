"""Training steps as one graph, without a device: what it may not hold, and that its steps are those of training."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flows import Glow, perceptron
from harness.core.settings import TrainingSettings
from harness.training.adam import Adam
from harness.training.capture import WARM_UPS, CudaRecorder
from harness.training.graphs import CapturedSteps, PlainSteps, steps_of
from harness.training.precision import lowered
from harness.training.updates import Updates
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1
from layers.kernels import load as kernels
from layers.woodbury import Woodbury

SHAPE = (2, 16)
SETTINGS = {
    "plain": {},
    "clipped": {"clip_norm": 0.1},
    "averages": {"ema": "all"},
    "separate averages": {"ema": "separate", "layer_decay": 0.5, "clip_norm": 1.0},
}
LAYERS = {
    "butterfly": lambda shape: Butterfly(shape, levels=3, shared=True, initialisation="rotation"),
    "woodbury": Woodbury,
}


def made(layer="butterfly", **settings):
    training = TrainingSettings(batch_size=8, warmup=4, **settings)
    flow = Glow(SHAPE, LAYERS[layer], Conv1x1, levels=2, steps=2, width=8, coupling="sequence")
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(8, *SHAPE, generator=generator) for _ in range(WARM_UPS + 4)]
    flow.initialise(batches[0])
    return flow, Updates(flow, training, points=16), training, batches


def measure(model, x, log_det):
    return {"nats_per_dim": -(model.log_prob(x).double() + log_det) / 32}


class Rerunner:
    """A recorder whose replay runs the recorded call again, with whatever it reads by then."""

    def __init__(self, fault=None):
        self.fault = fault
        self.rehearsed = self.replayed = 0

    def rehearse(self, call):
        self.rehearsed += 1
        return call()

    def record(self, call):
        if self.fault is not None:
            raise RuntimeError(self.fault)

        def replay():
            self.replayed += 1
            call()

        return replay


@pytest.mark.parametrize("name", SETTINGS)
def test_captured_steps_train_as_plain_ones(name):
    trained, losses = [], []
    for captured in (False, True):
        torch.manual_seed(0)
        flow, updates, _, batches = made(**SETTINGS[name])
        recorder = Rerunner()
        steps = CapturedSteps(updates, measure, recorder) if captured else PlainSteps(updates, measure)
        found = [
            float(steps.take(x, torch.full((8,), 0.1), number)["nats_per_dim"].detach().mean())
            for number, x in enumerate(batches, 1)
        ]
        trained.append(torch.cat([weight.detach().flatten() for weight in flow.parameters()]))
        losses.append(found)
    assert (recorder.rehearsed, recorder.replayed) == (WARM_UPS, 4)
    assert steps.graph.startswith("whole steps")
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-4, atol=1e-6)


def test_what_cannot_be_captured_is_trained_step_by_step_and_said():
    flow, updates, _, batches = made()
    steps = CapturedSteps(updates, measure, Rerunner("operation not permitted when stream is capturing\nmore"))
    before = deepcopy(flow.state_dict())
    with pytest.warns(UserWarning, match="not captured as a CUDA graph: none: operation not permitted") as warned:
        for number, x in enumerate(batches, 1):
            steps.take(x, torch.zeros(8), number)
            moved = any(not torch.equal(value, before[key]) for key, value in flow.state_dict().items())
            assert moved, f"step {number} changed nothing"
            before = deepcopy(flow.state_dict())
    assert len(warned) == 1
    assert steps.graph == "none: operation not permitted when stream is capturing"


def test_graphs_are_asked_for():
    _, updates, settings, _ = made()
    plain = steps_of(updates, measure, settings, torch.device("cpu"))
    assert isinstance(plain, PlainSteps) and plain.graph is None
    settings = settings.model_copy(update={"cuda_graph": True})
    plain = steps_of(updates, measure, settings, torch.device("cpu"))
    assert isinstance(plain, PlainSteps) and plain.graph == "none: the device is cpu, not cuda"
    drawn = steps_of(updates, measure, settings, torch.device("cuda"), drawn=True)
    assert isinstance(drawn, PlainSteps) and drawn.graph.startswith("none: the likelihood is an estimate")


class Watch(TorchDispatchMode):
    """Notes what would end a capture: a number of the device read by the host, sizes that depend on values."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")

    def __init__(self):
        super().__init__()
        self.operators, self.crossings = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operators.append(func._schema.name.partition("::")[2])
        tensors = [one for one in tree_leaves((args, kwargs, out)) if isinstance(one, torch.Tensor)]
        # A single number of the host may take part: it goes along with the launch.
        if len({one.device for one in tensors if one.ndim > 0 or one is out}) > 1:
            self.crossings.append(self.operators[-1])
        return out

    def found(self):
        return [name for name in self.operators if name in self.FORBIDDEN]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_waits_for_no_device(layer, name):
    _, updates, _, batches = made(layer, **SETTINGS[name])
    steps = CapturedSteps(updates, measure, Rerunner())
    for number in (1, 2):
        steps.take(batches[number], torch.zeros(8), number)
    with Watch() as watch:
        steps._step()
    adams = sum(name.startswith("_fused_adam") for name in watch.operators)
    assert adams > 0 and watch.found() == []


@pytest.mark.parametrize("layer", LAYERS)
def test_the_passes_of_a_step_copy_nothing_from_the_host(layer, monkeypatch):
    """On tensors that have a device and no values; a backward pass over them would need the device."""
    kernels.load()
    monkeypatch.setitem(kernels._backends, "cuda", kernels.Backend("cuda"))
    flow, *_ = made(layer)
    with FakeTensorMode() as mode, Watch() as watch:
        on_device(flow, mode)
        watch.crossings.clear()
        values = measure(flow, torch.empty(8, *SHAPE, device="cuda"), torch.empty(8, device="cuda"))
        assert values["nats_per_dim"].device.type == "cuda"
        assert watch.crossings == [] and watch.found() == []
        torch.ones(3).to("cuda")
    assert watch.crossings == ["_to_copy"]


def on_device(flow, mode):
    """Give every parameter and buffer a stand-in on a CUDA device."""
    for module in flow.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None:
                    moved = torch.empty_like(mode.from_tensor(value), device="cuda")
                    held[name] = torch.nn.Parameter(moved) if isinstance(value, torch.nn.Parameter) else moved


def test_the_watch_sees_a_host_that_waits():
    with Watch() as watch:
        bool((torch.ones(3) > 0).all())
        torch.ones(3)[torch.tensor([True, False, True])]
    assert {"_local_scalar_dense", "nonzero"} & set(watch.found())


def test_adam_takes_its_rate_from_a_tensor():
    torch.manual_seed(0)
    weights = [torch.randn(5, requires_grad=True) for _ in range(2)]
    weights[1] = weights[0].detach().clone().requires_grad_()
    for weight, rate in zip(weights, (0.25, torch.tensor(0.25)), strict=True):
        weight.grad = torch.arange(5.0)
        Adam([weight], (0.9, 0.999)).step(rate)
    assert torch.equal(*weights)


class Flags(TorchDispatchMode):
    """Whether TF32 was on as each operator ran, and in which precision its matrices were."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        floats = {one.dtype for one in args if isinstance(one, torch.Tensor) and one.is_floating_point()}
        self.seen.append((name, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, floats))
        return func(*args, **(kwargs or {}))


PRODUCTS = ("convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm")


def watched(precision, layer="woodbury"):
    """Operators of a training pass, flow and data of which need nothing of a device."""
    torch.manual_seed(0)
    flow, _, _, batches = made(layer)
    torch.backends.cudnn.allow_tf32 = False  # as in a trial
    with Flags() as flags:
        with lowered(flow, precision):
            log_prob = flow.log_prob(batches[0])
        log_prob.sum().backward()
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    assert log_prob.dtype == torch.float32
    assert all(weight.grad.dtype == torch.float32 for weight in flow.parameters() if weight.grad is not None)
    return flags.seen


def test_tf32_is_on_in_coupling_networks_alone_forward_and_backward(monkeypatch):
    monkeypatch.setattr(perceptron, "WIDEST", 0)  # as on a device: the compiled perceptron is the processor's
    flow, *_ = made("woodbury")
    seen = watched("tf32")
    assert all(matmul == cudnn for _, matmul, cudnn, _ in seen)
    nets = [name for name, on, _, _ in seen if on]
    others = [name for name, on, _, _ in seen if not on]
    assert any(name in PRODUCTS for name in nets)
    assert any(name.startswith("linalg") or "lu" in name for name in others)
    assert not any(name.startswith(("linalg", "_linalg")) for name in nets)
    plain = [name for name, *_ in watched("float32")]
    assert sum(name in PRODUCTS for name in nets) < sum(name in PRODUCTS for name in plain)
    # As many products in networks as there are without the layers and mixers: theirs stay outside.
    within = count_of_products_in_networks(flow)
    assert sum(name in PRODUCTS for name in nets) == within


def count_of_products_in_networks(flow):
    """Of one pass forward and backward through every coupling network, by itself."""
    total = 0
    for module in flow.modules():
        if type(module).__name__ != "AffineCoupling":
            continue
        x = torch.randn(8, module.kept, 8, requires_grad=True)
        with Flags() as flags:
            log_scale, shift = module.net(x)
            (log_scale.sum() + shift.square().sum()).backward()
        total += sum(name in PRODUCTS for name, *_ in flags.seen)
    return total


def test_bfloat16_is_for_coupling_networks_alone():
    seen = watched("bfloat16", "butterfly")
    assert any(name in PRODUCTS and torch.bfloat16 in floats for name, _, _, floats in seen)
    assert not any(torch.bfloat16 in floats for name, _, _, floats in seen if "butterfly" in name)
    assert not any(torch.bfloat16 in floats for _, _, _, floats in watched("float32", "butterfly"))


TRIAL = """
import torch
from harness.core.settings import DataRef, DensityTrial, FlowSettings, LayerRef, TrainingSettings
from harness.core.flags import configure
parts = {"data": DataRef(label="d", name="digits"), "layer": LayerRef(row="b", layer="butterfly")}
configure(DensityTrial(suite="s", profile="smoke", flow=FlowSettings(), training=TrainingSettings(), seed=0, **parts))
assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cuda.matmul.allow_tf32
assert not torch.empty(1000).isnan().all()
"""


def test_a_trial_does_not_fill_what_kernels_are_about_to_write():
    subprocess.run([sys.executable, "-c", TRIAL], check=True)


def test_settings_that_are_not_asked_for_leave_the_trials_what_they_were():
    assert not {"cuda_graph", "precision"} & set(TrainingSettings().model_dump())
    asked = TrainingSettings(cuda_graph=True, precision="tf32").model_dump()
    assert asked["cuda_graph"] is True and asked["precision"] == "tf32"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", SETTINGS)
def test_on_a_device_captured_steps_train_as_plain_ones(name):
    trained = []
    for captured in (False, True):
        torch.manual_seed(0)
        flow, _, settings, batches = made(**SETTINGS[name])
        updates = Updates(flow.cuda(), settings, points=16)
        steps = CapturedSteps(updates, measure, CudaRecorder()) if captured else PlainSteps(updates, measure)
        for number, x in enumerate(batches, 1):
            steps.take(x.cuda(), torch.zeros(8, device="cuda"), number)
        trained.append(torch.cat([weight.detach().flatten() for weight in flow.parameters()]))
    assert steps.graph.startswith("whole steps"), steps.graph
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-3, atol=1e-5)
