"""Compile the CUDA sources in csrc/ to a library in the cache, for the devices of this machine.

It is separate from the library for the processor, which declares the operators: without nvcc that one is
still built.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from layers.kernels.build import (
    BuildFailed,
    all_source_files,
    csrc_folder,
    find_compiler,
    find_or_make,
    fingerprint,
    for_cuda,
    includes,
    object_file,
    run_compiler,
    run_together,
    source_name,
    torch_folder,
)

LIBRARY = "libinvertbench_cuda.so"
COMPILE = ("-std=c++20", "-O3", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wno-psabi", "-DNDEBUG")
STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Werror")  # for tests; another nvcc may warn of more
BIND = ("-std=c++20", "-O2", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wno-psabi", "-DNDEBUG")
LIBRARIES = ("-ltorch_cpu", "-lc10", "-lc10_cuda")
NVCC = "nvcc"
SECONDS = 30.0  # of a source, for the estimate of the remaining time


def find_nvcc() -> Path:
    """Return CUDA's compiler: nvcc on the PATH, else of $CUDA_HOME, else in the usual place."""
    home = os.environ.get("CUDA_HOME")
    path = (
        shutil.which(NVCC)
        or (home and shutil.which(str(Path(home) / "bin" / NVCC)))
        or shutil.which(f"/usr/local/cuda/bin/{NVCC}")
    )
    if not path:
        raise BuildFailed("no nvcc", ": CUDA's compiler is not on the PATH and $CUDA_HOME does not lead to it")
    return Path(path)


def present_architectures() -> list[str]:
    """Return the kinds of the devices of this machine, each once."""
    devices = range(torch.cuda.device_count())
    return sorted({"sm_{}{}".format(*torch.cuda.get_device_capability(device)) for device in devices})


def compile_command(nvcc: Path, source: Path, made: Path, architectures: Sequence[str]) -> list[str]:
    """Return the command that compiles a .cu file."""
    targets = [
        f"-gencode=arch=compute_{architecture.removeprefix('sm_')},code={architecture}"
        for architecture in architectures
    ]
    return [str(nvcc), *COMPILE, *targets, f"-I{csrc_folder()}", "-c", str(source), "-o", str(made)]


def find_or_build(folder: Path) -> tuple[Path, list[str]]:
    """Return the library from `folder`, built there if necessary, and its architectures: those of the present devices.

    The name of a build is a hash of the sources, the flags, torch's version and the devices, and one of the compilers'
    versions.

    Raises:
        BuildFailed: no library is in the cache, and building fails; with a compiler's output, if it ran.
    """
    nvcc, compiler = find_nvcc(), find_compiler()
    architectures = present_architectures()
    contents = [f"{source_name(path)}\0{path.read_text(encoding='utf-8')}" for path in all_source_files()]
    code = fingerprint(*contents, *COMPILE, *BIND, *LIBRARIES, *architectures, str(torch.__version__))
    versions = [run_compiler([str(nvcc), "--version"], NVCC), run_compiler([*compiler, "--version"])]
    name = f"cuda-{code}-{fingerprint(*versions)[:8]}"

    def make(unfinished: Path) -> None:
        commands, objects = [], []
        for source in all_source_files():
            made = object_file(unfinished, source_name(source))
            if source.suffix == ".cu":
                commands.append(compile_command(nvcc, source, made, architectures))
            elif source.suffix == ".cpp" and for_cuda(source):
                # By nvcc, which hands the file to the C++ compiler and alone knows where CUDA's headers are.
                commands.append([str(nvcc), *BIND, *includes(), "-c", str(source), "-o", str(made)])
            else:
                continue
            objects.append(str(made))
        run_together(commands, [SECONDS] * len(commands), "CUDA", "a compiler of the CUDA kernels")
        libraries = [f"-L{torch_folder() / 'lib'}", *LIBRARIES]
        run_compiler([str(nvcc), "-shared", *objects, *libraries, "-o", str(unfinished / LIBRARY)], NVCC)

    return find_or_make(folder / name / LIBRARY, make), architectures
