"""Layers away from their initial weights, and ways with and without kernels, for the tests of several layers."""

import shutil
from collections.abc import Callable, Sequence
from ctypes import CDLL
from pathlib import Path
from typing import Any

import pytest
import torch
from emulations import CSRC, EMULATION, compile_host

from layers import InvertibleLinear
from layers.butterfly import Butterfly
from layers.emerging import Emerging
from layers.kernels import load as kernels

FUNCTIONS = {"butterfly": ("emulate_apply", "emulate_backward"), "emerging": ("emulate_emerging",)}


@pytest.fixture(scope="session")
def perturbed() -> Callable[..., Any]:
    """Return a function that builds a layer in float64 with noise on its initial weights, the same for each seed."""

    def build(
        cls: type[InvertibleLinear], shape: tuple[int, ...], scale: float = 0.3, seed: int = 0, /, **options: Any
    ) -> Any:
        torch.manual_seed(seed)
        layer = cls(shape, **options).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(scale * torch.randn_like(parameter))
        return layer

    return build


@pytest.fixture(scope="session")
def rotated(perturbed: Callable[..., Any]) -> Callable[..., Butterfly]:
    """Return a function that builds a butterfly of random rotations, with noise on them."""

    def build(shape: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype = torch.float64) -> Butterfly:
        return perturbed(Butterfly, shape, 0.1, initialisation="rotation", **options).to(dtype)

    return build


@pytest.fixture(scope="session")
def gentle(perturbed: Callable[..., Any]) -> Callable[..., Emerging]:
    """Return a function that builds an emerging convolution whose condition does not grow with channels and taps."""

    def build(
        shape: tuple[int, ...], kernel_size: int, dtype: torch.dtype = torch.float64, bias: bool = True, seed: int = 0
    ) -> Emerging:
        scale = 0.4 / (shape[0] * min(kernel_size, 5) ** (len(shape) - 1)) ** 0.5
        return perturbed(Emerging, shape, scale, seed, kernel_size=kernel_size, bias=bias).to(dtype)

    return build


@pytest.fixture(scope="session")
def without_kernels() -> Callable[..., Any]:
    """Return a function that calls another one, with plain PyTorch in place of compiled kernels."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "serve", lambda *tensors: False)
            patch.setattr(kernels, "serve_bfloat16", lambda *tensors: False)
            return function(*arguments)

    return call


@pytest.fixture(params=["kernels", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with all kernels, and with the fallback in plain PyTorch."""
    if request.param == "plain":
        monkeypatch.setattr(kernels, "serve", lambda *tensors: False)
    else:
        request.getfixturevalue("compiled")


@pytest.fixture(scope="session")
def compile_emulation() -> Callable[..., CDLL]:
    """Return a function that compiles an emulation to a library in a folder, of the sources with a fault if requested.

    A fault is (file, the text there, the text instead).
    """

    def compile_library(name: str, folder: Path, fault: Sequence[str] | None = None) -> CDLL:
        sources = CSRC
        if fault is not None:
            file, right, wrong = fault
            sources = folder / "csrc"
            shutil.copytree(CSRC, sources)
            text = (sources / file).read_text()
            assert right in text
            (sources / file).write_text(text.replace(right, wrong))
        return compile_host(EMULATION / f"{name}.cpp", folder, FUNCTIONS[name], [sources])

    return compile_library
