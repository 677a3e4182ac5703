"""A training step neither synchronises with a CUDA device nor copies to it; tested without a device."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flows import Glow
from harness.core.settings import TrainingSettings
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
    batches = [torch.randn(8, *SHAPE, generator=generator) for _ in range(3)]
    flow.initialise(batches[0])
    return flow, Updates(flow, training, points=16), batches


def measure(model, x, log_det):
    return {"nats_per_dim": -(model.log_prob(x).double() + log_det) / 32}


class Watch(TorchDispatchMode):
    """Record operators that synchronise: scalars read by the host, sizes that depend on values."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")

    def __init__(self):
        super().__init__()
        self.operators, self.crossings = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operators.append(func._schema.name.partition("::")[2])
        tensors = [tensor for tensor in tree_leaves((args, kwargs, out)) if isinstance(tensor, torch.Tensor)]
        # A scalar of the host is allowed: it is an argument of the launch.
        if len({tensor.device for tensor in tensors if tensor.ndim > 0 or tensor is out}) > 1:
            self.crossings.append(self.operators[-1])
        return out

    def waits(self):
        return [name for name in self.operators if name in self.FORBIDDEN]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_training_step_does_not_synchronise(layer, name):
    _, updates, batches = made(layer, **SETTINGS[name])

    def on_first_batch(model):
        return measure(model, batches[0], torch.zeros(8))

    for number in (1, 2):
        updates.step(on_first_batch, number)
    with Watch() as watch:
        updates.step(on_first_batch, 3)
    adams = sum(name.startswith("_fused_adam") for name in watch.operators)
    assert adams > 0 and watch.waits() == []


@pytest.mark.parametrize("layer", LAYERS)
def test_the_passes_of_a_step_copy_nothing_from_the_host(layer, monkeypatch):
    """On fake CUDA tensors without values, which have no backward pass."""
    kernels.load()
    monkeypatch.setitem(kernels._backends, "cuda", kernels.Backend("cuda"))
    flow, *_ = made(layer)
    with FakeTensorMode() as mode, Watch() as watch:
        on_device(flow, mode)
        watch.crossings.clear()
        values = measure(flow, torch.empty(8, *SHAPE, device="cuda"), torch.empty(8, device="cuda"))
        assert values["nats_per_dim"].device.type == "cuda"
        assert watch.crossings == [] and watch.waits() == []
        torch.ones(3).to("cuda")
    assert watch.crossings == ["_to_copy"]


def on_device(flow, mode):
    """Replace every parameter and buffer by a fake tensor on a CUDA device."""
    for module in flow.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None:
                    moved = torch.empty_like(mode.from_tensor(value), device="cuda")
                    held[name] = torch.nn.Parameter(moved) if isinstance(value, torch.nn.Parameter) else moved


def test_a_synchronisation_is_detected():
    with Watch() as watch:
        bool((torch.ones(3) > 0).all())
        torch.ones(3)[torch.tensor([True, False, True])]
    assert {"_local_scalar_dense", "nonzero"} & set(watch.waits())
