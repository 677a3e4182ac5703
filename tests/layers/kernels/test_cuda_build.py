"""The CUDA sources compile for their devices without warnings, into a library that loads."""

import subprocess
import sys

import pytest
import torch

from layers.kernels import build as kernel_build
from layers.kernels import cuda as cuda_build
from layers.kernels import load as kernels

pytestmark = pytest.mark.system

SOURCES = sorted(kernel_build.source_name(path) for path in kernel_build.all_source_files() if path.suffix == ".cu")


@pytest.fixture(scope="module")
def nvcc():
    try:
        return cuda_build.find_nvcc()
    except kernel_build.BuildFailed as error:
        pytest.skip(str(error))


def source(name):
    return kernel_build.csrc_folder() / name


def test_there_are_sources():
    assert {"butterfly/cuda/kernels.cu", "emerging/cuda/kernels.cu"} <= set(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_compiles_without_a_warning(nvcc, tmp_path, name):
    supported = kernel_build.run_compiler([str(nvcc), "--list-gpu-code"], "nvcc").split()
    assert {"sm_80", "sm_90"} <= set(supported)
    wanted = [name for name in ("sm_80", "sm_90", "sm_100") if name in supported]
    command = cuda_build.compile_command(nvcc, source(name), tmp_path / "made.o", wanted)
    # Unoptimised, which takes a third of the time; the library below is compiled as users get it.
    kernel_build.run_compiler([*command, *cuda_build.STRICT, "-Xcicc", "-O0", "-Xptxas", "-O0", "--threads=0"], "nvcc")


@pytest.mark.parametrize("name", SOURCES)
def test_the_sources_include_only_the_cuda_runtime(name):
    """Without torch's headers a kernel file compiles in seconds and with any torch."""
    text = "".join(path.read_text() for path in (source(name), *kernel_build.csrc_folder().rglob("cuda/*.h")))
    assert not any(word in text for word in ("ATen", "torch/", "c10/", "cublas", "thrust", "cub/"))


def test_a_warning_is_an_error(nvcc, tmp_path):
    faulty = tmp_path / "faulty.cu"
    faulty.write_text("__global__ void kernel(float* x) { int unused = 1; x[0] = 1; }\n")
    command = cuda_build.compile_command(nvcc, faulty, tmp_path / "made.o", ["sm_90"])
    with pytest.raises(kernel_build.BuildFailed, match="unused"):
        kernel_build.run_compiler([*command, *cuda_build.STRICT], "nvcc")


LOADED = """
import torch
from layers.kernels import cuda as cuda_build
from layers.kernels import load as kernels
cuda_build.present_architectures = lambda: ["sm_90"]
assert kernels.load("cuda"), kernels.backend("cuda")
operators = ("butterfly", "butterfly_inverse", "butterfly_backward", "butterfly_inverse_backward", "emerging_inverse")
for name in operators:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"invertbench::{name}", "CUDA"), name
print(kernels.backend("cuda").name, kernels.backend("cuda").instructions, kernels.backend().name)
"""


def test_the_library_loads_and_has_every_operator(nvcc):
    if torch.version.cuda is None:
        pytest.skip("torch is built without CUDA: there is nothing to link with")
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False, timeout=280)
    assert done.stdout.split() == ["cuda", "sm_90", "cpp"], done.stderr


def test_without_nvcc_plain_pytorch_is_used_with_one_warning(monkeypatch):
    def missing():
        raise kernel_build.BuildFailed("no nvcc")

    monkeypatch.setattr(cuda_build, "find_nvcc", missing)
    monkeypatch.setattr(kernels, "_backends", {})
    if not kernels.load():
        pytest.skip("there is no compiler at all")
    with pytest.warns(RuntimeWarning, match="plain PyTorch on CUDA devices, without kernels: no nvcc") as warned:
        assert not kernels.load("cuda") and not kernels.load("cuda")
    assert len(warned) == 1
    assert kernels.backend("cuda") == kernels.Backend("torch", reason="no nvcc")
    assert kernels.backend().name == "cpp"
