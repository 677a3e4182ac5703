"""Adam against torch's own."""

import subprocess
import sys

import pytest
import torch

from harness.training.adam import Adam
from harness.training.updates import BETAS

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torchs_adam_to_the_last_bit(dtype, device):
    generator = torch.Generator(device).manual_seed(0)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    ours = [draw(shape).requires_grad_() for shape in ((3, 4), (5,), ())]
    theirs = [weight.detach().clone().requires_grad_() for weight in ours]
    adam, reference = Adam(ours, BETAS), torch.optim.Adam(theirs, betas=BETAS, fused=True)
    for step in range(20):
        rate = 0.1 / (step + 1)
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            mine.grad = None if number == step % 4 else draw(mine.shape)
            other.grad = None if mine.grad is None else mine.grad.clone()
        adam.step(rate)
        reference.param_groups[0]["lr"] = rate
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)


def test_a_step_without_gradients_changes_nothing():
    weight = torch.ones(3, requires_grad=True)
    adam = Adam([weight], BETAS)
    adam.step(0.1)
    assert torch.equal(weight, torch.ones(3))
    weight.grad = torch.tensor([1.0, -2.0, 0.0])
    adam.step(0.1)  # the first step has the length of the rate, whatever the gradient
    torch.testing.assert_close(weight.detach(), torch.tensor([0.9, 1.1, 1.0]))


TRAIN = """
import sys, torch
import harness.execution.trial
from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
from harness.pipeline.models import build_flow
from harness.training.updates import Updates

flow = build_flow((2, 4, 4), LayerRef(row="conv1x1", layer="conv1x1"), FlowSettings(levels=1, steps=1, width=4), 0)
x = torch.randn(8, 2, 4, 4)
flow.initialise(x)
for ema in ("none", "all", "separate"):
    updates = Updates(flow, TrainingSettings(ema=ema, clip_norm=1.0), 8)
    updates.step(lambda model: {"nats_per_dim": -model.log_prob(x)}, 1)
print([name for name in ("torch._dynamo", "torchvision", "sklearn", "pandas", "matplotlib") if name in sys.modules])
"""


def test_training_imports_no_compiler():
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
