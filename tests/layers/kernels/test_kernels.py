"""Kernels are built once; without them layers fall back to plain PyTorch."""

import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.system

LAYER = """
import sys, warnings, torch
from layers.kernels import load as kernels
from layers.butterfly import Butterfly
layer = Butterfly((3, 8, 8), levels=4)
x = torch.randn(5, 3, 8, 8)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        assert torch.allclose(layer.inverse(layer(x)[0]), x, atol=1e-4)
print(kernels.backend().name, len(caught), *(str(one.message) for one in caught))
"""


def start(tmp_path, **environment):
    surroundings = {name: value for name, value in os.environ.items() if name not in ("CXX", "INVERTBENCH_KERNELS")}
    surroundings |= {"INVERTBENCH_CACHE": str(tmp_path / "cache")} | environment
    return subprocess.Popen(
        [sys.executable, "-c", LAYER], env=surroundings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def output_of(process):
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return out


def test_without_a_compiler_or_with_a_broken_one_plain_pytorch_is_used(tmp_path):
    broken = tmp_path / "bin" / "c++"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho the compiler is ill >&2\nexit 1\n")
    broken.chmod(0o755)
    out = output_of(start(tmp_path, PATH=f"{broken.parent}:/usr/bin:/bin", CXX=str(broken)))
    assert out.startswith("torch 1 layers run as plain PyTorch, without kernels: ") and "the compiler is ill" in out
    (tmp_path / "empty").mkdir()
    out = output_of(start(tmp_path, PATH=str(tmp_path / "empty")))
    assert out.startswith("torch 1 layers run as plain PyTorch, without kernels: no C++ compiler")


def test_switched_off(tmp_path):
    assert output_of(start(tmp_path, INVERTBENCH_KERNELS="off")).split() == ["torch", "0"]
    assert not (tmp_path / "cache").exists()


def test_a_killed_build_does_not_block_others(tmp_path):
    quick = tmp_path / "c++"  # builds whole and right, a little sooner
    quick.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    quick.chmod(0o755)
    first = start(tmp_path, CXX=str(quick))
    while not list((tmp_path / "cache").glob("kernels/*")):
        assert first.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    first.kill()
    first.communicate()
    assert not list((tmp_path / "cache").glob("kernels/*/*.so"))
    both = [start(tmp_path, CXX=str(quick)) for _ in range(2)]  # and of two at once, one builds
    assert [output_of(process).split()[:2] for process in both] == [["cpp", "0"]] * 2
    assert len(list((tmp_path / "cache").glob("kernels/*/*.so"))) == 1
