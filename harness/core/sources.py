"""Which source can change a trial's result: a digest of every file that its code imports from this project.

From the module that runs the trial's kind, the layers' files and the data set's, imports are followed through
flows/, layers/ and the rooms of harness/ that a trial runs in. Where one of these files calls a compiled operator, the
files of csrc that the operator is made of on the trial's device come along (`harness.core.kernel_sources`). Settings,
plans, records and reports are not followed: what they decide is in the trial's settings. Python files count by what
they say to Python: comments, docstrings and layout change no digest.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.core.kernel_sources import ALL, kernel_files
from harness.core.kinds import kind_of
from harness.core.run_options import PROJECT
from harness.core.settings import Trial, layers_of

FOLLOWED = (
    "flows",
    "layers",
    "harness.audit",
    "harness.core.environment",
    "harness.core.flags",
    "harness.evaluation",
    "harness.kinds",
    "harness.pipeline",
    "harness.timing",
    "harness.training",
    "harness.datasets",
)
LENGTH = 12  # of a digest, in hexadecimal digits


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two sets of digests: "flows/glow.py changed", "layers/fast.py is new", "... is gone"."""
    found = []
    for path in sorted(before.keys() | now.keys()):
        if path not in before:
            found.append(f"{path} is new")
        elif path not in now:
            found.append(f"{path} is gone")
        elif before[path] != now[path]:
            found.append(f"{path} changed")
    return found


def file_digest(path: Path) -> str:
    """Of a layer's file as it is, byte for byte: what the id of a trial of a FILE.py:CLASS holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class Sources:
    """The source of this moment: each file is read once, however many trials share it."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[str, tuple[str, ...], frozenset[str]]] = {}
        self._trials: dict[tuple[str | None, ...], dict[str, str]] = {}

    def of(self, trial: Trial) -> dict[str, str]:
        """Path below the project -> digest, of every file that can change the result of a trial.

        Raises:
            UserError: a layer of the trial is not to be found.
        """
        starts, unused = _starts(trial), _unused(trial)
        device = trial.device if kind_of(trial.kind).depends_on(trial).operators else None
        key = (device, *sorted(map(str, starts)), *sorted(map(str, unused)))
        if key not in self._trials:
            self._trials[key] = self._closure(starts, device, unused)
        return self._trials[key]

    def _closure(self, starts: list[Path], device: str | None, unused: Iterable[Path] = ()) -> dict[str, str]:
        waiting, seen = list(starts), {*starts, *unused}
        found: dict[str, str] = {}
        operators: set[str] = set()
        while waiting:
            path = waiting.pop()
            found[_name(path)], imports, called = self._read(path)
            operators |= called
            for module in imports:
                file = _file(module)
                if file is not None and file not in seen:
                    seen.add(file)
                    waiting.append(file)
        if operators and device is not None:
            files = kernel_files(PROJECT / "csrc", operators, device)
            found |= {_name(file): hashlib.sha256(file.read_bytes()).hexdigest()[:LENGTH] for file in files}
        return dict(sorted(found.items()))

    def _read(self, path: Path) -> tuple[str, tuple[str, ...], frozenset[str]]:
        """Digest, followed imports, and the compiled operators that the file calls."""
        if path not in self._files:
            content = path.read_bytes()
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):  # importing it will say what is wrong
                self._files[path] = (hashlib.sha256(content).hexdigest()[:LENGTH], (), frozenset())
            else:
                _remove_docstrings(tree)
                text = "".join(_words(tree))
                digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]
                followed = tuple(dict.fromkeys(name for name in _imports(tree) if name.startswith(FOLLOWED)))
                self._files[path] = (digest, followed, _operators(tree))
        return self._files[path]


def _starts(trial: Trial) -> list[Path]:
    """The files that a trial begins with."""
    from flows.baselines import find_baseline
    from harness.core.layer_files import (
        resolve_layer,  # which takes torch, as layers do; what compares digests needs none
    )

    needs = kind_of(trial.kind).depends_on(trial)
    modules, layers = ["harness.core.flags", *needs.modules], layers_of(trial)
    if any(layer.baseline for layer in layers):  # a whole flow, without the backbone's mixer
        classes: list[type] = [find_baseline(layer.layer) for layer in layers]
    else:
        names = [layer.layer for layer in layers] + ["conv1x1"] * needs.mixer
        classes = [resolve_layer(name) for name in dict.fromkeys(names)]
    files = [Path(inspect.getfile(cls)).resolve() for cls in classes]
    return list(dict.fromkeys([*(file for name in modules if (file := _file(name)) is not None), *files]))


def _unused(trial: Trial) -> list[Path]:
    """Files that are imported on the way, and that the trial does not run: the perceptron, where no coupling is one."""
    file = _file("flows.perceptron")
    return [] if file is None or kind_of(trial.kind).depends_on(trial).perceptron else [file]


def _name(path: Path) -> str:
    """A file's path below the project; of a file from elsewhere its name alone, as records name no places."""
    return path.relative_to(PROJECT).as_posix() if path.is_relative_to(PROJECT) else path.name


def _file(module: str) -> Path | None:
    """The file of a module of this project; none for a package, which only gathers what its modules define."""
    path = PROJECT / f"{module.replace('.', '/')}.py"
    return path if path.is_file() else None


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules that a file imports, wherever in it but for types alone; a name from a package stands for the module
    that defines it.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                yield from _defined_in(node.module, alias.name)


def _defined_in(package: str, name: str) -> Iterator[str]:
    """The module from which a package of this project takes a name."""
    gathered = PROJECT / package.replace(".", "/") / "__init__.py"
    if not package.startswith(FOLLOWED) or not gathered.is_file():
        return
    for node in ast.parse(gathered.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            yield node.module


def _operators(tree: ast.Module) -> frozenset[str]:
    """Names of the compiled operators in a file, `torch.ops.invertbench.NAME`; ALL where it takes them otherwise."""
    spaces = {id(node) for node in ast.walk(tree) if _is_namespace(node)}
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node.value) in spaces]
    return frozenset([*(node.attr for node in named), *[ALL] * (len(named) < len(spaces))])


def _is_namespace(node: ast.AST) -> bool:
    """Whether a node is `torch.ops.invertbench`."""
    if not isinstance(node, ast.Attribute) or node.attr != "invertbench":
        return False
    return isinstance(node.value, ast.Attribute) and node.value.attr == "ops"


def _remove_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]


def _words(node: ast.AST) -> Iterator[str]:
    """A tree as text, without positions, and without empty fields, of which each version of Python has its own."""
    yield f"({type(node).__name__}"
    for field, value in ast.iter_fields(node):
        if value is None or value == [] or field in ("ctx", "kind", "type_comment"):
            continue
        yield f" {field}="
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _words(item)
            else:
                yield repr(item)
    yield ")"
