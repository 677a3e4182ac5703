"""Find the source that can change a trial's result: digests of the rooms in which its code is, and of its own files.

A room, such as flows/ or harness/training/, has one digest, and every trial depends on all rooms in which trials run,
and on the folder of its kind. Layers, data sets and flows of other papers are one file each, and each has its own
digest: a trial depends on those of its classes, and of what their files name. Settings, plans, records and reports are
not among them: the trial's settings contain their decisions. Third-party files are included.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from harness.core.file_modules import Followed
from harness.core.files import SOURCE, read_file
from harness.core.run_options import PROJECT
from harness.core.third_party import followed, is_third_party
from harness.core.trial import Trial

ROOMS = (
    "csrc",
    "flows",
    "flows/backbones",
    "flows/baselines/__init__.py",
    *(f"layers/{room}" for room in ("adapters", "butterflies", "kernels", "linalg", "chain.py", "conv1x1.py")),
    *(f"harness/{room}" for room in ("audit", "evaluation", "pipeline", "timing", "training")),
    *(f"harness/datasets/{room}" for room in ("_images", "_signals", "_store", "_values")),
    "harness/core/flags.py",
    "harness/core/provenance/environment.py",
)
FILES = ("layers", "flows/baselines", "harness/datasets")
"""Folders each file of which is one thing that a trial may use, not part of a room."""

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
        self._read: dict[Path, str] = {}
        self._followed: dict[str, Followed] = {}

    def of(self, trial: Trial) -> dict[str, str]:
        """Return the digests of all rooms and files that can change the result of a trial, and library -> version.

        Keys are paths below the project; those of third-party files begin in the folder where they were looked for.

        Raises:
            UserError: a layer or the data set of the trial does not exist.
        """
        from flows.baselines import find_baseline
        from harness.core.layer_classes import resolve_layer  # imports torch, which comparing digests does not need

        layers = trial.layers_under_test
        classes = [find_baseline(layer.layer) if layer.baseline else resolve_layer(layer.layer) for layer in layers]
        own = {file for cls in (*classes, *trial.data_classes()) for file in _files(cls)}
        places = [(name, PROJECT / name) for name in {*ROOMS, *own, *_rooms_of(type(trial))}]
        packages: dict[str, str] = {}
        named = [layer.layer for layer in layers] + [data.name for data in trial.data_sets]
        for spec in filter(is_third_party, dict.fromkeys(named)):
            if spec not in self._followed:
                self._followed[spec] = followed(spec)
            places += [(name, file) for file, name in self._followed[spec].files.items()]
            packages |= self._followed[spec].packages
        digests: dict[str, set[str]] = {}
        for name, path in places:  # files of two folders may share a name
            digests.setdefault(name, set()).add(self._digest(path))
        joined = {name: min(each) if len(each) == 1 else _joined(sorted(each)) for name, each in digests.items()}
        return dict(sorted((joined | packages).items()))

    def _digest(self, path: Path) -> str:
        """Return the digest of a file or room."""
        if path not in self._read:
            files = sorted(path.rglob("*") if path.name == "csrc" else path.glob("*.py")) if path.is_dir() else [path]
            contents = [(file.name, read_file(file, SOURCE)) for file in files if file.is_file()]
            self._read[path] = _joined(text for name, content in contents for text in (name, _sha(content)))
        return self._read[path]


@cache
def _files(cls: type) -> list[str]:
    """Return the files, of those that are one thing each, of a class, its bases, and what its module names."""
    module = sys.modules.get(cls.__module__)  # none for a class made by an adapter
    named = [*cls.__mro__, *(vars(module).values() if module else ())]
    modules = {value.__module__ or "" for value in named if inspect.isclass(value) or inspect.isfunction(value)}
    places = (module.replace(".", "/") for module in modules)
    return [f"{place}.py" for place in places if place.rpartition("/")[0] in FILES]


@cache
def _rooms_of(kind: type[Trial]) -> list[str]:
    """Return the folder of a kind and those below it in which its trials run."""
    folder = PROJECT / "harness" / "kinds" / kind.__module__.split(".")[-2]
    rooms = {file.parent.relative_to(PROJECT) for file in folder.rglob("*.py")}
    return [room.as_posix() for room in rooms if REPORTING.isdisjoint(room.parts)]


def _joined(texts: Iterable[str]) -> str:
    return _sha("\n".join(texts).encode("utf-8", "surrogatepass"))[:LENGTH]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
