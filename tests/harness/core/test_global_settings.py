"""Every global setting that a layer can change is noticed, named and restored."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from harness.core import global_settings
from harness.core.global_settings import GlobalSettings
from layers import InvertibleLinear
from layers.scale import Scale

KEPT = []  # context managers that are entered and never left


def enter(context):
    context.__enter__()
    KEPT.append(context)


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class OperatorMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def replace(owner, name):
    setattr(owner, name, lambda *args, **kwargs: None)


def product(a, b):
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def replace_kernel():
    KEPT.append(torch.library.Library("aten", "IMPL"))
    KEPT[-1].impl("mm", product, "CPU")


def work():
    while time.thread_time() < 2 * global_settings.BUSY:
        pass


def hook(*args):
    return None


CHANGES = {
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("cpu"),
    "float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "float32 precision of generic all": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "float32 precision of mkldnn conv": lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "tf32"),
    "torch.backends.cudnn.allow_tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "torch.backends.cuda.matmul.allow_tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "torch.backends.cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.set_flags(False),
    "deterministic algorithms": lambda: torch.set_deterministic_debug_mode("error"),
    "flash attention": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "inference mode": lambda: enter(torch.inference_mode()),
    "flush of denormal numbers": lambda: torch.set_flush_denormal(True),
    "autocast on cpu": lambda: enter(torch.autocast("cpu")),
    "torch.nn.modules.module._global_forward_hooks": lambda: nn.modules.module.register_module_forward_hook(hook),
    "torch.nn.modules.module._global_backward_hooks": lambda: nn.modules.module.register_module_full_backward_hook(
        hook
    ),
    "hooks of saved tensors": lambda: enter(torch.autograd.graph.save_on_cpu()),
    "threads of autograd": lambda: torch._C._set_multithreading_enabled(False),
    "modes of torch functions": lambda: enter(FunctionMode()),
    "modes of operators": lambda: enter(OperatorMode()),
    "torch.einsum": lambda: replace(torch, "einsum"),
    "torch.Tensor.add_": lambda: replace(torch.Tensor, "add_"),
    "torch.nn.Module.__call__": lambda: replace(nn.Module, "__call__"),
    "torch.nn.init.normal_": lambda: replace(nn.init, "normal_"),
    "torch.optim.Adam.step": lambda: replace(torch.optim.Adam, "step"),
    "torch.optim.adam.adam": lambda: replace(global_settings.ADAM, "adam"),
    "Scale.inverse": lambda: replace(Scale, "inverse"),
    "InvertibleLinear.check_event": lambda: replace(InvertibleLinear, "check_event"),
    "Scale.added": lambda: replace(Scale, "added"),
    "kernel of aten/mm/CPU": replace_kernel,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_once_and_undone(name):
    settings = GlobalSettings()
    CHANGES[name]()
    changes = settings.restore()
    assert name in [change.partition(": ")[0] for change in changes]
    assert settings.restore() == []
    assert torch.ones(2).requires_grad_().mul(2).sum().grad_fn is not None


def test_a_change_that_cannot_be_undone_is_named_once(monkeypatch):
    held = {"number": 2}

    def refuse(value):
        raise RuntimeError("it can be set only once")

    monkeypatch.setattr(global_settings, "_SETTINGS", {"number": (lambda: held["number"], refuse)})
    settings = GlobalSettings()
    held["number"] = 3
    assert settings.restore() == ["number: 2 -> 3"]
    assert settings.restore() == []


def test_a_thread_that_works_is_named_and_one_that_waits_is_not():
    settings, end = GlobalSettings(), threading.Event()
    with ThreadPoolExecutor(1, "prefetching") as pool:
        pool.submit(int).result()
        assert settings.restore() == []
        thread = threading.Thread(target=end.wait, name="prefetch")
        thread.start()
        try:
            assert [text.partition(" (")[0] for text in settings.restore()] == ["thread prefetch"]
            assert settings.restore() == []
        finally:
            end.set()
            thread.join()
        pool.submit(work).result()
        assert [text.partition(" (")[0] for text in settings.restore()] == ["thread prefetching_0"]


def test_draws_imports_and_new_names_are_no_changes(monkeypatch):
    settings = GlobalSettings()
    torch.randn(3)
    monkeypatch.setattr(torch, "a_new_name", hook, raising=False)
    monkeypatch.setattr(torch.Tensor, "a_new_name", hook, raising=False)
    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled())  # imports a module that replaces
    assert settings.restore() == []
