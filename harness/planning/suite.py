"""Find, read and check a suite file; every fault of it is reported at once, each with its place."""

from __future__ import annotations

import copy
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.core.errors import SuiteError, nearest
from harness.planning.strict_yaml import Document, Fault, Place, read
from harness.planning.suite_errors import Finding, dotted, findings, raise_faults
from harness.planning.suite_model import Suite

LIST_SUITES = "`python -m harness list suites` shows the packaged ones"


def packaged_suites() -> list[str]:
    """The names of the suites that come with the package."""
    names = [entry.name for entry in files("suites").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load_suite(source: str | Path, *, examined: bool = False) -> Suite:
    """Read a suite file and check everything about it that does not depend on the command line.

    Args:
        source: a path, or the name of a packaged suite ("quickstart"; "suites/quickstart.yaml" is found outside
            of a checkout, too).
        examined: whether it belongs to a suite of claims, and may train on a published mistake.

    Raises:
        SuiteError: with every fault, each as ``file:line:column: message``.
    """
    return _load(source, shapes=False, examined=examined)


def validate_suite(source: str | Path, *, examined: bool = False) -> Suite:
    """As `load_suite`, and build every layer on every shape that it meets in any profile."""
    return _load(source, shapes=True, examined=examined)


def read_suite(source: str | Path) -> Suite:
    """Read a suite file and check its structure alone, without a look at layers and data (and without torch)."""
    document, suite, faults, _ = _parse(source)
    raise_faults(document.name, faults)
    if suite is None:
        raise SuiteError(f"{document.name}:1:1: not a suite")
    return suite


def _load(source: str | Path, *, shapes: bool, examined: bool) -> Suite:
    from harness.planning.resolve import Scope
    from harness.planning.suite_checks import suite_findings
    from harness.planning.suite_shapes import shape_findings

    document, suite, faults, trusted = _parse(source, examined)
    if suite is not None:
        faults += [finding.fault(document) for finding in suite_findings(suite)]
        # A suite that is refused anyway is told about its shapes in the same go; one that is not waits for
        # the command line, which may change them.
        if (shapes or faults) and trusted:
            scopes = [Scope(suite, profile) for profile in suite.profiles]
            faults += [finding.fault(document) for finding in shape_findings(scopes)]
    raise_faults(document.name, faults)
    if suite is None:
        raise SuiteError(f"{document.name}:1:1: not a suite")
    return suite


def _parse(source: str | Path, examined: bool = False) -> tuple[Document, Suite | None, list[Fault], bool]:
    """Document, suite, faults, and whether the suite's models can be told from the rest despite the faults."""
    document, folder = find_document(source)
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else "the top level is not a mapping"
        if not document.faults:
            raise SuiteError(f"{document.name}:1:1: {what}; a suite has the keys suite, kind, title, layers, profiles")
        return document, None, document.faults, False
    found, suite = _validated(document.value)
    known = {(fault.line, fault.column) for fault in document.faults}
    schema: dict[tuple[int, int, str], Fault] = {}
    for finding in found:
        fault = finding.fault(document)
        # What the reader of YAML dropped is None here: one message for it is enough. So is one for a part that
        # aliases put into several places.
        if (fault.line, fault.column) not in known:
            rule = fault.message.removeprefix(dotted(finding.place)).replace(dotted(finding.place[:-1]), "")
            schema.setdefault((fault.line, fault.column, rule), fault)
    trusted = not document.faults and not any(_touches_models(finding.place) for finding in found)
    return document, suite and suite.attach(document, folder, examined), [*document.faults, *schema.values()], trusted


def _validated(value: dict[str, Any]) -> tuple[list[Finding], Suite | None]:
    """Validate; if that fails, what is found, and the suite without the faulty parts where one remains."""
    try:
        return [], Suite.model_validate(value)
    except ValidationError as error:
        found = findings(error, Suite)
    pruned = copy.deepcopy(value)
    for finding in found:
        _remove(pruned, finding.place)
    try:
        # A stand-in for what no other part of the suite depends on.
        return found, Suite.model_validate({"suite": "unnamed", "title": "untitled"} | pruned)
    except ValidationError:
        return found, None


def _remove(value: Any, place: Place) -> None:
    """Take the part at this place out; a faulty item takes its list with it."""
    for part in place[:-1]:
        inner = value.get(part) if isinstance(value, dict) else None
        if isinstance(inner, list):
            value.pop(part)
        if not isinstance(inner, dict):
            return
        value = inner
    if place:
        value.pop("lr" if place[-1] == "learning_rate" and "lr" in value else place[-1], None)


def _touches_models(place: Place) -> bool:
    """Whether a fault here may change which models are built on which shapes."""
    harmless = {"training", "published", "timing", "title", "question", "seeds", "threads"}
    return not harmless.intersection(place)


def find_document(source: str | Path) -> tuple[Document, Path | None]:
    """A suite file as YAML, with its faults, and the folder that it lies in; None for a packaged one.

    Raises:
        SuiteError: there is no such file, or it cannot be read.
    """
    path, name = Path(source).expanduser(), str(source)
    try:
        packaged = None if path.is_file() else _packaged_name(name)
        there, folder = path.exists(), path.is_dir()
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a suite file ({LIST_SUITES})") from error
    if packaged:
        with as_file(files("suites") / f"{packaged}.yaml") as file:
            return read(file, f"{packaged}.yaml" if name == packaged else name), None
    if not there:
        hint = nearest(Path(name).stem, packaged_suites())
        raise SuiteError(f"{name}: no such file, and no packaged suite of this name; {hint} ({LIST_SUITES})")
    if folder:
        raise SuiteError(f"{name}: a directory; name a suite file ({LIST_SUITES})")
    return read(path, name), path.parent


def _packaged_name(name: str) -> str | None:
    """The packaged suite that `quickstart`, `quickstart.yaml` or `suites/quickstart.yaml` means."""
    stem = name.replace("\\", "/").removesuffix(".yaml").removeprefix("suites/")
    if stem in packaged_suites():
        return stem
    folder, _, part = stem.rpartition("/")
    inner = files("suites") / folder / f"{part}.yaml"  # a part of a packaged suite of claims
    return stem if folder in packaged_suites() and inner.is_file() else None


__all__ = ["Suite", "load_suite", "packaged_suites", "read_suite", "validate_suite"]
