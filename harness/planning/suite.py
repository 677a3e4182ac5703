"""Find and read suite files; all faults of one step are reported at once, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, create_model

from harness.core.errors import SuiteError, nearest
from harness.core.explain import explain, shown
from harness.core.run_options import PROJECT
from harness.core.texts import control_fault
from harness.planning.cells import raise_faults
from harness.planning.strict_yaml import Document, document_of, read
from harness.planning.suite_base import Origin, Suite, SuiteFile
from harness.planning.suite_model import SUITES

Source = str | Path | Mapping[str, Any]
"""A suite: the path of a file, the name of a packaged one, or a mapping with the content of a file."""

PACKAGED = PROJECT / "suites"
LIST_SUITES = "`python -m harness list suites` shows the packaged ones"


def packaged_suites() -> list[str]:
    """Return the names of the suites that come with the package."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def read_suite(source: Source, *, data: Path | None = None, examined: bool = False) -> SuiteFile:
    """Read a suite and check its structure, without its layers and data sets (and without torch).

    Args:
        source: a path, or a packaged suite ("quickstart"; "suites/quickstart.yaml" is found outside of a checkout too),
            or a mapping, whose paths are relative to the working directory.
        data: the data root.
        examined: whether it belongs to a suite of claims, and may train on a published mistake.

    Raises:
        SuiteError: with every fault, each as ``file:line:column: message``, or with the keys of a mapping.
    """
    document, folder = find_document(source)
    _require_mapping(document)
    if isinstance(document.value.get("include"), str):
        document.value = _over_included(document, folder)
    kinds = {kind: cls.file_model() for kind, cls in sorted(SUITES.items())}
    names: Any = Literal[tuple(kinds)]
    try:
        # First the kind alone, as the other keys depend on it.
        create_model("Head", kind=(names, ...)).model_validate(document.value)
        suite: SuiteFile = kinds[document.value["kind"]].model_validate(document.value)
    except ValidationError as error:
        model = kinds.get(str(document.value.get("kind")), SuiteFile)
        raise_faults(document, explain(error, model))
        raise
    origin = Origin(document, folder, data, examined)
    return suite.attach(origin._replace(parts=_joined(suite, origin)))


def _require_mapping(document: Document) -> None:
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else "the top level is not a mapping"
        raise SuiteError(f"{document.name}:1:1: {what}; a suite has the keys suite, kind, layers, profiles")


def _over_included(document: Document, folder: Path | None) -> dict[str, Any]:
    """Return the content of a suite over that of the suite that it includes, whose name it does not inherit."""
    name, where = document.value["include"], document.located(document.position(("include",)), "include: ")
    beside = folder is not None and Path(name).name == name and (folder / name).is_file()
    if not beside and _packaged_name(name) is None:
        hint = nearest(name, packaged_suites())
        raise SuiteError(f"{where}{name!r} is neither a packaged suite nor a file in the folder of this one; {hint}")
    base, _ = find_document(folder / name if folder is not None and beside else name)
    _require_mapping(base)
    if "include" in base.value:
        raise SuiteError(f"{where}{name!r} includes another suite itself; include that one, and repeat the changes")
    return _laid_over({key: value for key, value in base.value.items() if key != "suite"}, document.value)


def _laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return mappings merged at all depths; null in place of a mapping removes it."""
    whole = base | changes
    for key, value in changes.items():
        if isinstance(base.get(key), dict) and value is None:
            del whole[key]
        elif isinstance(base.get(key), dict) and isinstance(value, dict):
            whole[key] = _laid_over(base[key], value)
    return whole


def _joined(suite: SuiteFile, origin: Origin) -> dict[str, Suite]:
    """Return the suites that a suite joins, by label."""
    parts: dict[str, Suite] = {}
    for label, file in suite.part_files.items():
        place = file if origin.folder is None else origin.folder / file
        part = None if origin.examined else read_suite(place, data=origin.data, examined=True)
        if not isinstance(part, Suite):
            raise SuiteError(f"{origin.document.name}: a claim is tested by trials, and suites of claims have none")
        parts[label] = part
    if len({part.suite for part in parts.values()}) < len(parts):
        raise SuiteError(f"{origin.document.name}: two of the suites that it names have one name; rename one")
    return parts


def find_document(source: Source) -> tuple[Document, Path | None]:
    """Return a suite as YAML and its folder; None for a packaged one."""
    if isinstance(source, Mapping):
        name = source.get("suite")
        return document_of(source, name if isinstance(name, str) and name else "the suite"), Path()
    if not isinstance(source, (str, Path)):
        raise SuiteError(f"suite: expected the path of a file, the name of a suite or a mapping, got {shown(source)}")
    path, name = Path(source).expanduser(), str(source)
    if (fault := control_fault(name)) is not None:  # the plan names the file
        raise SuiteError(f"the suite: {fault}, and rename the file")
    try:
        packaged = None if path.is_file() else _packaged_name(name)
        there = path.exists()
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a suite file ({LIST_SUITES})") from error
    if packaged:
        return read(PACKAGED / f"{packaged}.yaml", f"{packaged}.yaml" if name == packaged else name), None
    if not there:
        hint = nearest(Path(name).stem, packaged_suites())
        raise SuiteError(f"{name}: no such file, and no packaged suite of this name; {hint} ({LIST_SUITES})")
    return read(path, name), path.parent


def _packaged_name(name: str) -> str | None:
    """Return the packaged suite of a name such as `quickstart`, `quickstart.yaml` or `suites/quickstart.yaml`."""
    stem = name.replace("\\", "/").removesuffix(".yaml").removeprefix("suites/")
    names, folder = packaged_suites(), stem.rpartition("/")[0]  # of a part of a packaged suite of claims
    there = stem in names or (folder in names and (PACKAGED / f"{stem}.yaml").is_file())
    return stem if there else None
