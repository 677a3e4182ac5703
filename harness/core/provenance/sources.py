"""Find the source that can change a trial's result: digests of the rooms in which its code is, and of its own files.

A room, such as flows/ or harness/training/, has one digest. Layers, data sets and flows of other papers are one file
each, and each has its own digest. The imports of the module that runs the trial's kind, of its layers and of its data
set are followed through `FOLLOWED`; every trial depends on csrc/. Settings, plans, records and reports are not
followed: the trial's settings contain their decisions. Third-party files are included (`third_party_files`).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.core.files import SOURCE, read_file
from harness.core.provenance.third_party_files import Followed, imported, parsed
from harness.core.run_options import PROJECT
from harness.core.third_party import followed, is_third_party
from harness.core.trial import Trial

FOLLOWED = (
    "flows",
    "layers",
    "harness/audit",
    "harness/evaluation",
    "harness/kinds",
    "harness/pipeline",
    "harness/timing",
    "harness/training",
    "harness/datasets",
)
FILES = ("layers", "flows/baselines", "harness/datasets")
"""Folders each file of which is one thing that a trial may use, not part of a room."""

ALWAYS = (
    "csrc",
    "layers/conv1x1.py",  # the mixer of flows
    "layers/kernels",
    "harness/core/flags.py",
    "harness/core/provenance/environment.py",
)
REPORTING = {"figures", "tables"}  # folders of kinds, in which no trial runs
LENGTH = 12  # of a digest, in hexadecimal digits


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the differences of two sets of digests: "flows changed", "layers/fast.py is new", "x is gone"."""
    return [
        f"{path} {'is new' if path not in before else 'is gone' if path not in now else 'changed'}"
        for path in sorted(before.keys() | now.keys())
        if before.get(path) != now.get(path)
    ]


class Sources:
    """The current source: each file is read once, however many trials share it."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[str, set[Path]]] = {}
        self._trials: dict[tuple[Path, ...], dict[str, str]] = {}
        self._followed: dict[str, Followed] = {}

    def of(self, trial: Trial) -> dict[str, str]:
        """Return the digests of all rooms and files that can change the result of a trial, and library -> version.

        Keys are paths below the project; those of third-party files begin in the folder where they were looked for.

        Raises:
            UserError: a layer or the data set of the trial does not exist.
        """
        third_party = self._third_party(trial)
        starts = tuple(sorted({*_starts(trial), *third_party.files}))
        if starts not in self._trials:
            digests = self._digests(starts, third_party.files)
            self._trials[starts] = dict(sorted((digests | third_party.packages).items()))
        return self._trials[starts]

    def _third_party(self, trial: Trial) -> Followed:
        code = Followed()
        named = [layer.layer for layer in trial.layers_under_test] + [data.name for data in trial.data_sets]
        for spec in filter(is_third_party, dict.fromkeys(named)):
            if spec not in self._followed:
                self._followed[spec] = followed(spec)
            code.files |= self._followed[spec].files
            code.packages |= self._followed[spec].packages
        return code

    def _digests(self, starts: Iterable[Path], names: Mapping[Path, str]) -> dict[str, str]:
        waiting, seen = [*starts, *(PROJECT / name for name in ALWAYS)], set()
        digests: dict[str, list[str]] = {}
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                digest, parts = self._part(path)
                inside = path.is_relative_to(PROJECT)
                # Records contain no folders; files of two folders may share a name.
                name = path.relative_to(PROJECT).as_posix() if inside else names.get(path, path.name)
                digests.setdefault(name, []).append(digest)
                waiting += parts
        return {name: each[0] if len(each) == 1 else _digest(sorted(each)) for name, each in digests.items()}

    def _part(self, path: Path) -> tuple[str, set[Path]]:
        """Return the digest of a file or room, and the files and rooms that it imports."""
        if path not in self._read:
            files = sorted(path.rglob("*") if path.name == "csrc" else path.glob("*.py")) if path.is_dir() else [path]
            parts: set[Path] = set()
            texts = []
            for file in (file for file in files if file.is_file() and file.suffix != ".pyc"):
                content = read_file(file, SOURCE)
                texts += [file.name, hashlib.sha256(content).hexdigest()]
                if file.suffix == ".py":
                    with contextlib.suppress(SyntaxError, ValueError):  # importing it will raise the error
                        parts.update(*map(_parts, imported(parsed(content))))
            self._read[path] = _digest(texts), parts
        return self._read[path]


def _starts(trial: Trial) -> list[Path]:
    """Return the rooms and files that a trial begins with."""
    from flows.baselines import find_baseline
    from harness.core.layer_classes import resolve_layer  # imports torch, which comparing digests does not need

    layers = trial.layers_under_test
    classes: list[type] = [
        find_baseline(layer.layer) if layer.baseline else resolve_layer(layer.layer) for layer in layers
    ]
    # A layer of another library is defined in its files; what applies it is in layers/adapters.
    classes += [type(library) for cls in classes if (library := getattr(cls, "library", None)) is not None]
    classes += trial.data_classes()
    run = sys.modules[type(trial).__module__].__file__
    files = [Path(inspect.getfile(cls)).resolve() for cls in classes]
    return [Path(str(run)).resolve().parent, *(_room(file) for file in files)]


def _room(file: Path) -> Path:
    """Return the folder of a file of this project; the file itself where each is one thing, and outside."""
    folder = file.parent.relative_to(PROJECT).as_posix() if file.is_relative_to(PROJECT) else ""
    return file if folder in FILES or not folder.startswith(FOLLOWED) else file.parent


def _parts(module: str) -> list[Path]:
    """Return the followed room or file of a module."""
    path = module.replace(".", "/")
    if not path.startswith(FOLLOWED) or not REPORTING.isdisjoint(path.split("/")):
        return []
    places = (PROJECT / f"{path}{end}" for end in (".py", "/base.py", "/__init__.py"))
    return [_room(file) for file in places if file.is_file()][:1]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]
