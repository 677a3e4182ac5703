"""Compile the sources in csrc/ to a library in the cache, once for all users of that cache.

A build is one folder, named by all its dependencies. It is made in a temporary folder in the same place, under a
lock that the system releases when its holder dies, and then renamed: a killed build leaves no folder
that looks complete, and no process waits for it.

A library has the kernels of one instruction set, which for several would take as much longer. Torch's headers take
seconds in every translation unit, and those of autograd most: the sources that define gradients are compiled as one, as
are those that define operators on tensors. `*kernels.cpp`, which read next to none, are compiled each by itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from pathlib import Path

import torch

from layers.kernels.progress import Progress, say
from layers.kernels.trust import fault_of, is_whole, private_folder, seal

LIBRARY = "libinvertbench.so"
COMPILERS = ("c++", "g++", "clang++")
# No -march: it would change the code outside of the kernels, and with it results.
COMPILE = (
    "-std=c++20", "-O3", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fvisibility=hidden", "-DNDEBUG", "-Wno-psabi",
)  # fmt: skip
# The instruction set of the kernels, by what torch names the processor's.
SETS = {"AVX512": ("-DINVERTBENCH_FOR_AVX512",), "AVX2": ("-DINVERTBENCH_FOR_AVX2",)}
# The two translation units made of several sources, and the header that only sources of the first one include.
GRADIENTS, OPERATORS = "gradients.cpp", "operators.cpp"
AUTOGRAD = '#include "autograd.h"'
# Processor seconds of each translation unit, for the first estimate of the remaining time.
SECONDS = {
    GRADIENTS: 32.0,
    OPERATORS: 32.0,
    "butterfly/cpu/kernels.cpp": 11.0,
    "emerging/cpu/kernels.cpp": 7.0,
    "coupling/perceptron_kernels.cpp": 5.0,
    "coupling/convolutions_kernels.cpp": 4.0,
}
LINK = ("-shared", "-fopenmp")
LIBRARIES = ("-ltorch_cpu", "-lc10")
MESSAGE_LINES = 6
Make = Callable[[Path], None]  # make(folder)


class BuildFailed(Exception):
    """There is no compiled library; the message gives the reason.

    Attributes:
        reason: the message without its details, without paths of this machine.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(f"{reason}{details}")
        self.reason = reason


def cache_folder() -> Path:
    """Return this user's cache: $INVERTBENCH_CACHE, else $XDG_CACHE_HOME/invertbench, else ~/.cache/invertbench."""
    folder, common = os.environ.get("INVERTBENCH_CACHE"), os.environ.get("XDG_CACHE_HOME")
    cache = Path(folder) if folder else (Path(common) if common else Path.home() / ".cache") / "invertbench"
    return cache.absolute() / "kernels"


def find_or_build(folder: Path) -> Path:
    """Return the compiled library from `folder`, built there if necessary.

    The name of a build is a hash of the sources, the flags, torch's version and the kind of machine, the processor's
    instruction set included, and one of the compiler's version. A machine without a compiler uses the build of any
    compiler.

    Raises:
        BuildFailed: no library is in the cache, and building fails; with the compiler's output, if it ran.
    """
    sources = [path for path in all_source_files() if path.suffix in (".cpp", ".h") and not for_cuda(path)]
    contents = [f"{source_name(path)}\0{path.read_text(encoding='utf-8')}" for path in sources]
    flags = (*COMPILE, *instruction_set())
    machine = (str(torch.__version__), sys.platform, platform.machine())
    code = fingerprint(*contents, *flags, *LINK, *LIBRARIES, *machine)
    try:
        compiler = find_compiler()
        version, _, _ = run_compiler([*compiler, "--version"]).partition("\n")
        name = f"{code}-{fingerprint(version)[:8]}"
    except BuildFailed:
        others = [path for path in sorted(folder.glob(f"{code}-*/{LIBRARY}")) if fault_of(path) is None]
        whole = next(filter(is_whole, others), None)
        if whole is None:
            raise
        return whole

    return find_or_make(folder / name / LIBRARY, partial(_compile, [*compiler, *flags], sources))


def instruction_set() -> tuple[str, ...]:
    """Return the flags for the instructions that torch uses on this processor, which ATEN_CPU_CAPABILITY limits."""
    return SETS.get(torch.backends.cpu.get_cpu_capability(), ())


def find_or_make(library: Path, make: Make) -> Path:
    """Return the library, made by `make(folder)` under its name in an empty folder if it is missing or damaged.

    Where other users could have written it, it is neither loaded nor replaced: one in a private folder is returned.
    """
    if (fault := fault_of(library)) is not None:
        library = _private(library, fault)
    if is_whole(library):
        return library
    import fcntl  # not on Windows

    final = library.parent
    folder = final.parent
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o755, exist_ok=True)
        with (folder / f"{final.name}.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another process is building these kernels, which takes about a minute: waiting for it", last=True)
                fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when its holder dies
            if not is_whole(library):  # another process may have made it while this one waited
                _build(make, library)
    except OSError as error:
        raise BuildFailed(
            f"compiled kernels cannot be kept in the cache ({error.strerror or error})",
            f"; {folder} cannot be used: set $INVERTBENCH_CACHE to a folder that can be written",
        ) from error
    return library


def _private(library: Path, fault: str) -> Path:
    """Return the place of the library in a private folder, and say that it has this fault where it is."""
    try:
        private = private_folder() / library.parent.name / library.name
        second_fault = fault_of(private)
    except OSError as error:
        second_fault = error.strerror or str(error)
    if second_fault is not None:
        raise BuildFailed(
            "the cache of compiled kernels can be written by other users",
            f": {fault}, and {second_fault}; set $INVERTBENCH_CACHE to a folder that only you can write",
        )
    print(
        f"invertbench: {fault}, so its compiled kernels are not used; those of {private.parent.parent} are, until "
        "$INVERTBENCH_CACHE names a folder that only you can write",
        file=sys.stderr,
        flush=True,
    )
    return private


def all_source_files() -> list[Path]:
    """Return every source and header, those for a CUDA device included."""
    return sorted(path for path in csrc_folder().rglob("*") if path.suffix in (".cpp", ".cu", ".h"))


def for_cuda(source: Path) -> bool:
    """Return whether a source is for a CUDA device: it is in a folder of that name."""
    return "cuda" in source_name(source).split("/")


def csrc_folder() -> Path:
    """Return csrc/, which the paths of includes are relative to."""
    return Path(str(resources.files("csrc")))


def source_name(source: Path) -> str:
    """Return the path of a source below csrc/, such as "butterfly/cpu/kernels.cpp"."""
    return source.relative_to(csrc_folder()).as_posix()


def object_file(folder: Path, name: str) -> Path:
    """Return the file in `folder` that the source of this name is compiled to; names below csrc/ contain folders."""
    return folder / f"{name.replace('/', '_')}.o"


def find_compiler() -> list[str]:
    """Return the command of the C++ compiler: $CXX, else the first of c++, g++ and clang++ on the PATH."""
    if sys.platform == "win32":
        raise BuildFailed("kernels are not built on Windows")
    requested = shlex.split(os.environ.get("CXX", ""))
    for candidate in [requested] if requested else [[name] for name in COMPILERS]:
        path = shutil.which(candidate[0])
        if path:
            return [path, *candidate[1:]]
    missing = f"$CXX, {requested[0]}, is not there" if requested else f"none of {', '.join(COMPILERS)} is on the PATH"
    raise BuildFailed("no C++ compiler", f": {missing}")


def _build(make: Make, library: Path) -> None:
    """Make the library in a temporary folder, and move the result to its place."""
    final = library.parent
    for abandoned in final.parent.glob(f".{final.name}-*"):  # by builds that were killed: the lock is held here
        shutil.rmtree(abandoned, ignore_errors=True)
    unfinished = final.parent / f".{final.name}-{secrets.token_hex(4)}"
    unfinished.mkdir(mode=0o755)
    try:
        make(unfinished)
        for made in (*unfinished.glob("*.o"), *unfinished.glob("*.cpp")):
            made.unlink()
        seal(unfinished, unfinished / library.name)
        shutil.rmtree(final, ignore_errors=True)  # exists only if its library was deleted or is damaged
        unfinished.rename(final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _compile(compiler: Sequence[str], sources: Sequence[Path], folder: Path) -> None:
    """Compile every source and link them."""
    units = {source_name(source): source for source in sources if source.name.endswith("kernels.cpp")}
    joined: dict[str, list[str]] = {GRADIENTS: [], OPERATORS: []}
    for source in sources:
        if source.suffix == ".cpp" and source_name(source) not in units:
            unit = GRADIENTS if AUTOGRAD in source.read_text(encoding="utf-8") else OPERATORS
            joined[unit].append(f'#include "{source_name(source)}"\n')
    for unit, lines in joined.items():
        units[unit] = folder / unit
        units[unit].write_text("".join(lines), encoding="utf-8")
    commands, objects, seconds = [], [], []
    for unit, source in units.items():
        objects.append(str(object_file(folder, unit)))
        commands.append([*compiler, *includes(), "-c", str(source), "-o", objects[-1]])
        seconds.append(SECONDS.get(unit, 5.0))
    run_together(commands, seconds, "CPU")
    library = folder / LIBRARY
    run_compiler([*compiler, *LINK, *objects, f"-L{torch_folder() / 'lib'}", *LIBRARIES, "-o", str(library)])
    if not library.is_file():
        raise BuildFailed("the C++ compiler succeeded without output", f": {compiler[0]}")


def torch_folder() -> Path:
    """Return the folder in which torch is installed."""
    return Path(torch.__file__).parent


def includes() -> list[str]:
    """Return the include flags for our headers and for torch's."""
    include = torch_folder() / "include"
    return [f"-I{csrc_folder()}", "-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]


def run_together(
    commands: Sequence[Sequence[str]], seconds: Sequence[float], what: str, who: str = "the C++ compiler"
) -> None:
    """Run commands, which take about these seconds, as many at once as there are cores, and tell the progress."""
    cores = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1
    progress = Progress(what, seconds, cores)

    def run(step: int) -> None:
        started = time.monotonic()
        run_compiler(commands[step], who)
        progress.finished(step, time.monotonic() - started)

    with ThreadPoolExecutor(cores) as pool:
        try:
            list(pool.map(run, sorted(range(len(commands)), key=lambda step: -seconds[step])))
        except BuildFailed:
            progress.failed()
            raise


def run_compiler(command: Sequence[str], who: str = "the C++ compiler") -> str:
    """Return the compiler's output; raise BuildFailed with its first lines if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LC_ALL": "C"},
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildFailed(f"{who} cannot be run: {error.strerror or error}", f": {command[0]}") from error
    if done.returncode:
        said = "".join(f"\n  {line}" for line in done.stdout.splitlines()[:MESSAGE_LINES])
        raise BuildFailed(f"{who} ended with exit code {done.returncode}", f": {command[0]}{said}")
    return done.stdout


def fingerprint(*texts: str) -> str:
    """Return a short digest of these texts."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()[:16]
