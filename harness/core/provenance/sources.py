"""Find the source that can change a trial's result: a digest of every file that its code imports.

The imports of the module that runs the trial's kind, of the layers' files and of the data set's are followed through
flows/, layers/ and the rooms of harness/ that a trial runs in. Where one of these files calls a compiled operator, the
files of csrc that define the operator on the trial's device are included (`kernel_files`).
Settings, plans, records and reports are not followed: the trial's settings contain their decisions. Third-party code is
followed outside of libraries, of which the versions are included (`harness.core.provenance.third_party_files`). Python
files are compared by their syntax trees: comments, docstrings and layout do not change a digest.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from harness.core.files import SOURCE, read_file
from harness.core.provenance.third_party_files import Followed, imports, merged
from harness.core.run_options import PROJECT
from harness.core.third_party import followed, is_third_party
from harness.core.trial import Trial

FOLLOWED = (
    "flows",
    "layers",
    "harness.audit",
    "harness.core.provenance.environment",
    "harness.core.flags",
    "harness.evaluation",
    "harness.kinds",
    "harness.pipeline",
    "harness.timing",
    "harness.training",
    "harness.datasets",
)
LENGTH = 12  # of a digest, in hexadecimal digits
ALL = "*"  # stands for all operators

INCLUDE = re.compile(r'^\s*#\s*(?:include|define INVERTBENCH_BODY)\s+"([^"]+)"', re.MULTILINE)
REGISTERED = re.compile(r'\bm\.(?:def|impl)\(\s*"(\w+)')
FOR_DEVICE = re.compile(r"TORCH_LIBRARY_IMPL\(\s*invertbench\s*,\s*(\w+)")
SOURCES = (".cpp", ".cu")
DEVICES = {"CPU", "CUDA"}  # with or without Autograd before them; Autograd alone, Meta and others serve every device


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the differences of two sets of digests: "flows/glow.py changed", "layers/fast.py is new", "x is gone"."""
    return [
        f"{path} {'is new' if path not in before else 'is gone' if path not in now else 'changed'}"
        for path in sorted(before.keys() | now.keys())
        if before.get(path) != now.get(path)
    ]


class Sources:
    """The current source: each file is read once, however many trials share it."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[str, tuple[str, ...], frozenset[str]]] = {}
        self._trials: dict[tuple[str | None, ...], dict[str, str]] = {}
        self._followed: dict[str, Followed] = {}

    def of(self, trial: Trial) -> dict[str, str]:
        """Return path -> digest, for every file that can change the result of a trial, and library -> version.

        Paths are below the project; those of third-party files begin in the folder where they were looked for.

        Raises:
            UserError: a layer or the data set of the trial does not exist.
        """
        starts, needs = _starts(trial), trial.dependencies()
        third_party = self._third_party(trial)
        starts = list(dict.fromkeys([*starts, *third_party.files]))
        unused = list(map(_path, needs.unused))
        device = trial.device if needs.operators else None
        key = (device, *sorted(map(str, starts)), *sorted(map(str, unused)))
        if key not in self._trials:
            digests = self._closure(starts, device, unused, third_party.files)
            self._trials[key] = dict(sorted((digests | third_party.packages).items()))
        return self._trials[key]

    def _third_party(self, trial: Trial) -> Followed:
        """Return the third-party files and packages of the layers and the data of a trial."""
        named = [layer.layer for layer in trial.layers_under_test] + [data.name for data in trial.data_sets]
        specs = list(filter(is_third_party, dict.fromkeys(named)))
        for spec in specs:
            if spec not in self._followed:
                self._followed[spec] = followed(spec)
        return merged(self._followed[spec] for spec in specs)

    def _closure(
        self,
        starts: list[Path],
        device: str | None,
        unused: Iterable[Path] = (),
        names: Mapping[Path, str] = MappingProxyType({}),
    ) -> dict[str, str]:
        waiting, seen = list(starts), {*starts, *unused}
        read: dict[str, set[str]] = {}
        operators: set[str] = set()
        while waiting:
            path = waiting.pop()
            digest, modules, called = self._read(path)
            read.setdefault(_name(path, names), set()).add(digest)
            operators |= called
            for module in modules:
                file = _file(module)
                if file is not None and file not in seen:
                    seen.add(file)
                    waiting.append(file)
        # Files of two folders may share a name.
        digests = {name: min(each) if len(each) == 1 else _digest("".join(sorted(each))) for name, each in read.items()}
        if operators and device is not None:
            files = kernel_files(PROJECT / "csrc", operators, device)
            digests |= {_name(file): hashlib.sha256(file.read_bytes()).hexdigest()[:LENGTH] for file in files}
        return dict(sorted(digests.items()))

    def _read(self, path: Path) -> tuple[str, tuple[str, ...], frozenset[str]]:
        """Return the digest, the followed imports, and the compiled operators that the file calls."""
        if path not in self._files:
            content = read_file(path, SOURCE)
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):  # importing it will raise the error
                self._files[path] = (hashlib.sha256(content).hexdigest()[:LENGTH], (), frozenset())
            else:
                text = ast.unparse(_NoDocstrings().visit(tree))
                modules = tuple(dict.fromkeys(name for name in _imports(tree) if name.startswith(FOLLOWED)))
                # An access to the operators that names none may be to all of them.
                operators = frozenset(name or ALL for name in re.findall(r"\bops\.invertbench\b(?:\.(\w+))?", text))
                self._files[path] = (_digest(text), modules, operators)
        return self._files[path]


def _starts(trial: Trial) -> list[Path]:
    """Return the files that a trial begins with."""
    from flows.baselines import find_baseline
    from harness.core.layer_classes import resolve_layer  # imports torch, which comparing digests does not need

    needs = trial.dependencies()
    modules, layers = ["harness.core.flags", *needs.modules], trial.layers_under_test
    if any(layer.baseline for layer in layers):  # a whole flow, without the backbone's mixer
        classes: list[type] = [find_baseline(layer.layer) for layer in layers]
    else:
        names = [layer.layer for layer in layers] + ["conv1x1"] * needs.mixer
        classes = [resolve_layer(name) for name in dict.fromkeys(names)]
    # A layer of another library is defined in its files; what applies it is in layers/adapters.
    classes += [type(library) for cls in classes if (library := getattr(cls, "library", None)) is not None]
    files = [Path(inspect.getfile(cls)).resolve() for cls in (*needs.classes, *classes)]
    return list(dict.fromkeys([*(file for name in modules if (file := _file(name)) is not None), *files]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def _name(path: Path, names: Mapping[Path, str] = MappingProxyType({})) -> str:
    """Return a file's path below the project; for other files that of `names`, as records contain no folders."""
    return path.relative_to(PROJECT).as_posix() if path.is_relative_to(PROJECT) else names.get(path, path.name)


def _file(module: str) -> Path | None:
    """Return the file of a module of this project; None for a package, which only gathers what its modules define."""
    path = _path(module)
    return path if path.is_file() else None


def _path(module: str) -> Path:
    return PROJECT / f"{module.replace('.', '/')}.py"


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a file imports, except for types alone, and those that define names from packages."""
    for level, module, names in imports(tree):
        if not level:
            yield module
            for name in names:
                yield f"{module}.{name}"
                yield from _defined_in(module, name)


def _defined_in(package: str, name: str) -> Iterator[str]:
    """Yield the module from which a package of this project imports a name."""
    gathered = PROJECT / package.replace(".", "/") / "__init__.py"
    if not package.startswith(FOLLOWED) or not gathered.is_file():
        return
    for node in ast.parse(gathered.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            yield node.module


class _NoDocstrings(ast.NodeTransformer):
    """Remove statements that are constants, which have no effect."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def kernel_files(folder: Path, operators: Collection[str], device: str) -> list[Path]:
    """Return the files below `folder` that can change what the operators compute on a type of device.

    A source registers operators (`m.def`, `m.impl`), for all devices or for one. The search starts at the sources that
    register an operator and follows their headers (`#include "..."`, and the bodies of csrc/simd/each.h). A source that
    registers nothing defines the declarations of the first header that it includes, and belongs to every file that
    includes that header.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in SOURCES}
    waiting, defining = [], []
    for path, text in sorted(texts.items()):
        registered = set(REGISTERED.findall(text))
        if not registered:
            defining.append((path, _headers(path, text, folder)[:1]))
        elif (ALL in operators or registered & set(operators)) and _serves(text, device):
            waiting.append(path)
    files = set(waiting)
    while waiting:
        path = waiting.pop()
        headers = _headers(path, path.read_text(encoding="utf-8"), folder)
        reached = {*headers, *(source for source, declared in defining if path in declared)} - files
        files |= reached
        waiting += reached
    return sorted(files)


def _serves(text: str, device: str) -> bool:
    """Return whether the operators that a source registers run on a type of device."""
    keys = {key.removeprefix("Autograd") for key in FOR_DEVICE.findall(text)}
    return not keys or bool(keys - DEVICES) or device.upper() in keys


def _headers(path: Path, text: str, folder: Path) -> list[Path]:
    """Return the headers below `folder` that a file includes, in order, relative to the file or to `folder`."""
    candidates = ((path.parent / name, folder / name) for name in INCLUDE.findall(text))
    return [next(file for file in pair if file.is_file()) for pair in candidates if any(map(Path.is_file, pair))]
