"""What a suite says about layers and data sets, held against the layers and data sets that there are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from flows.baselines import BASELINES
from harness.core.errors import UserError, nearest
from harness.core.layer_classes import resolve_layer
from harness.core.settings import FlowSettings, Settings, augmentation_fault
from harness.datasets import Dataset, find_dataset
from harness.planning.resolve import Column, Scope, Where, cells, class_name, column_of, rows_of
from harness.planning.strict_yaml import Place
from harness.planning.suite_errors import Finding
from harness.planning.suite_model import MAP, DataEntry, FlowRow, Kind, Overlay, Profile, Row, Suite, Timing
from harness.planning.suite_shapes import cell_faults

# Which kinds of suite use a key; keys that are not named here mean something in every kind.
_USED_BY: dict[tuple[type, str], set[Kind]] = {
    (Suite, "operations"): {"runtime"},
    (Suite, "examine"): {"examination"},
    **{(part, "flows"): {"density"} for part in (Suite, Profile, DataEntry)},
    (Profile, "seeds"): {"density"},
    (Profile, "datasets"): {"density", "parameters", "examination"},
    (Profile, "averages"): {"density"},
    (Profile, "remark"): {"density"},
    (Profile, "timing"): {"density", "runtime"},
    (Profile, "widths"): {"parameters"},
    (Profile, "sweeps"): {"runtime"},
    (DataEntry, "shape"): {"parameters", "examination"},
    (DataEntry, "widths"): {"parameters"},
    (Row, "oracle"): {"density"},
    **{(DataEntry, key): {"density"} for key in MAP},
    **{(part, "flow"): {"density", "parameters", "examination"} for part in (Suite, Profile, DataEntry, Row, Overlay)},
    **{(part, "training"): {"density"} for part in (Suite, Profile, DataEntry, Row, Overlay)},
}


def suite_findings(suite: Suite) -> list[Finding]:
    """What is wrong with the file apart from shapes: keys of another kind, unknown layers, data sets, options."""
    found = list(_misplaced(suite, suite.kind, Where(())))
    for label, (row, where) in rows_of(suite).items():
        if isinstance(row, FlowRow):
            found += _baseline_findings(suite, label, row, where)
            continue
        found += _unknown_layer(suite, row.layer or label, where.inside("layer") if row.layer else where)
        found += _misplaced(row, suite.kind, where)
    for name in suite.profiles:
        scope = Scope(suite, name)
        found += _misplaced(scope.profile, suite.kind, Where(scope.place))
        if not scope.columns:
            key = "sweeps" if suite.kind == "runtime" else "datasets"
            message = f"profiles.{name} has no {key}, and so nothing to do; add the key {key!r}"
            found.append(Where(scope.place).says(message, at_key=True))
        if suite.kind == "parameters" and not all(scope.widths(column) for column in scope.columns):
            message = f"profiles.{name} has no widths; say at which coupling widths to count: widths: [64]"
            found.append(Where(scope.place).says(message, at_key=True))
        found += scope_findings(scope)
    if suite.kind == "examination" and not suite.examine:
        found.append(
            Where(()).says("the key 'examine' is missing; a list of what to compute of each layer", at_key=True)
        )
    return found


def scope_findings(scope: Scope) -> list[Finding]:
    """Unknown rows, data sets and options, and raw lattice values, in one profile under the overrides."""
    suite = scope.suite
    found = list(_unknown_rows(scope, scope.profile, Where(scope.place).at))
    found += _unknown_rows(scope, scope.overrides.profile, scope.overrides.where)
    found += _misplaced_overrides(scope)
    labels = set(rows_of(suite))
    for spec in scope.extra:
        where, label = Where((), f"--layer {spec}"), class_name(spec)
        found += _unknown_layer(suite, spec, where)
        if label in labels:
            found.append(where.says(f"the suite has a row {label!r} already; give the class another name"))
        labels.add(label)
    if suite.kind != "runtime":
        for label in scope.profile.datasets:
            found += _data_findings(scope, column_of(scope, label))
    if suite.kind == "density":
        found += _average_findings(scope, scope.profile, Where(scope.place).at)
        found += _average_findings(scope, scope.overrides.profile, scope.overrides.where)
        found += _sample_findings(scope)
    for one in cells(scope):
        for option, message in cell_faults(one):
            found.append(one.option_places.get(option, one.where).says(f"{one.row}: option {message}"))
    return found + _quarantine(scope)


def _quarantine(scope: Scope) -> list[Finding]:
    """A training on what is no log-determinant, anywhere but in a claim that is examined."""
    if scope.suite.examined or all(one.training.accounting == "true" for one in cells(scope)):
        return []
    asked = any(place[-1:] == ("accounting",) for place in scope.overrides.origins)
    where = scope.overrides.where(("training",)) if asked else Where(scope.place)
    message = (
        "training.accounting: what the released code counts is no log-determinant, and no likelihood comes of it; only "
        "a suite that one of kind claims names may train on it (python -m harness run claims); remove it"
    )
    return [where.says(message, at_key=True)]


SIZES = ("levels", "steps", "width")
"""What a baseline takes from `flow`; the rest of it is about the backbone."""


def _baseline_findings(suite: Suite, label: str, row: FlowRow, where: Where) -> Iterator[Finding]:
    """An unknown baseline, a label that a layer's row has, settings of the backbone."""
    name = row.baseline or label
    if name not in BASELINES:
        place = where.inside("baseline") if row.baseline else where
        message = f"no baseline is called {name!r}; {nearest(name, BASELINES)} (`python -m harness list flows`)"
        yield place.says(message, at_key=row.baseline is None)
    if label in suite.layers:
        yield where.says(f"flows: {label!r} is a row of layers already; label one of the two otherwise", at_key=True)
    yield from _backbone_settings(row.flow, where)


def _backbone_settings(flow: FlowSettings, where: Where) -> Iterator[Finding]:
    for name in sorted(flow.model_fields_set - set(SIZES)):
        message = f"flow.{name}: has no effect on a baseline, which takes {', '.join(SIZES)}; remove it"
        yield where.inside("flow", name).says(message, at_key=True)


def _unknown_layer(suite: Suite, spec: str, where: Where) -> list[Finding]:
    try:
        resolve_layer(spec, suite.folder)
    except UserError as error:
        return [where.says(str(error), at_key=where.place[-1:] != ("layer",))]
    return []


def _data_findings(scope: Scope, column: Column) -> Iterator[Finding]:
    entry, name = column.entry, column.entry.data or column.label
    place_of = _entry_places(scope, column)
    if entry.shape is not None and scope.suite.kind in ("parameters", "examination"):
        return  # only the shape counts
    try:
        dataset = find_dataset(name, scope.suite.folder)
        faults = dataset.option_errors(column.options)
        shape = () if faults else dataset.event_shape(column.options)
    except UserError as error:
        where = place_of("data") if entry.data else column.where
        yield where.says(str(error), at_key=entry.data is None)
        return
    for option, message in faults:
        yield column.option_places.get(option, column.where).says(message)
    if dataset.info.lattice and not entry.dequantise and not entry.allow_unbounded:
        yield place_of("dequantise").says(
            f"{column.label}: dequantise: false, but the values of {name} lie on a lattice, where a density can grow "
            "without bound and no likelihood means anything; remove the setting, or say allow_unbounded: true to "
            "train on raw values all the same"
        )
    if entry.preprocessing == "logit" and not faults and dataset.kind(column.options) != "image":
        yield place_of("preprocessing").says(
            f"{column.label}: preprocessing: logit is for pixels, and {name} holds sequences; use scale"
        )
    if entry.augmentation != "none" and not faults:
        fault = augmentation_fault(entry.augmentation, shape)
        if fault is not None:
            yield place_of("augmentation").says(f"{column.label}: {fault}")


def _dataset_of(scope: Scope, column: Column) -> Dataset | None:
    """Return the data set of a column; None if there is none or its options are wrong, which is a finding already."""
    with contextlib.suppress(UserError):
        dataset = find_dataset(column.entry.data or column.label, scope.suite.folder)
        dataset.parse(column.options)
        return dataset
    return None


def _average_findings(scope: Scope, profile: Profile, place_of: Callable[[Place], Where]) -> Iterator[Finding]:
    """Averages of columns that are not there, or that have no common unit."""
    for label, members in profile.averages.items():
        where = place_of(("averages", label))
        if label in scope.columns:
            yield where.says(
                f"averages: {label!r} is a data set of profiles.{scope.name}; name the average otherwise", True
            )
        if len(set(members)) < len(members):
            yield where.says(f"averages.{label}: names a data set twice; each counts once")
        unknown = [member for member in members if member not in scope.columns]
        for member in unknown:
            hint = nearest(member, scope.columns)
            yield where.says(f"averages.{label}: profiles.{scope.name} has no data set {member!r}; {hint}")
        columns = [column_of(scope, member) for member in members if member not in unknown]
        kinds = {
            dataset.kind(column.options) for column in columns if (dataset := _dataset_of(scope, column)) is not None
        }
        if len(kinds) > 1:
            yield where.says(f"averages.{label}: bits/dim of images and nats/dim of sequences have no common mean")


def _sample_findings(scope: Scope) -> Iterator[Finding]:
    """Columns of sequences whose samples were to be compared as images are."""
    for label in dict.fromkeys(one.column for one in cells(scope) if one.training.samples is not None):
        column = column_of(scope, label)
        dataset = _dataset_of(scope, column)
        if dataset is not None and dataset.kind(column.options) != "image":
            message = (
                f"{label}: training.samples compares images, and {dataset.name} holds sequences; ask for them of "
                "images alone, or not of this data set: training: {samples: null}"
            )
            changed = scope.overrides.profile
            parts = [(("training",), changed), (("datasets", label, "training"), changed.datasets.get(label))]
            given = [place for place, part in parts if part is not None and part.training.samples is not None]
            where = scope.overrides.where((*given[-1], "samples")) if given else column.where
            yield where.says(message, at_key=True)


def _entry_places(scope: Scope, column: Column) -> Callable[[str], Where]:
    changed = scope.overrides.profile.datasets.get(column.label)

    def place_of(name: str) -> Where:
        if changed is not None and name in changed.model_fields_set:
            return scope.overrides.where(("datasets", column.label, name))
        return column.where.inside(name)

    return place_of


def _unknown_rows(scope: Scope, profile: Profile, place_of: Callable[[Place], Where]) -> Iterator[Finding]:
    """Rows and data sets that a profile changes although the suite does not have them."""
    every = list(dict.fromkeys([*scope.suite.layers, *rows_of(scope.suite, scope.extra)]))
    flows = list(scope.suite.flows)
    rows = [label for label in every if label not in flows]
    known = scope.profile.datasets
    for label in profile.rows or ():
        if label not in every:
            yield place_of(("rows",)).says(f"rows: the suite has no row {label!r}; {nearest(label, every)}")
    for label in profile.layers:
        if label not in rows:
            yield place_of(("layers", label)).says(
                f"the suite has no row {label!r}; {nearest(label, rows)}", at_key=True
            )
    yield from _flow_overlays(profile, flows, place_of)
    for label, entry in profile.datasets.items():
        place: Place = ("datasets", label)
        if label not in known:
            message = f"profiles.{scope.name} has no data set {label!r}; {nearest(label, known)}"
            yield place_of(place).says(message, at_key=True)
        for row in entry.layers:
            if row not in rows:
                where = place_of((*place, "layers", row))
                yield where.says(f"the suite has no row {row!r}; {nearest(row, rows)}", at_key=True)


def _flow_overlays(profile: Profile, flows: list[str], place_of: Callable[[Place], Where]) -> Iterator[Finding]:
    """Baselines that a profile or a data set changes although the suite does not have them, and how."""
    places: list[tuple[Place, dict[str, Overlay]]] = [((), profile.flows)]
    places += [(("datasets", label), entry.flows) for label, entry in profile.datasets.items()]
    for place, overlays in places:
        for label, overlay in overlays.items():
            where = place_of((*place, "flows", label))
            if label not in flows:
                message = f"the suite has no row {label!r} under `flows`; {nearest(label, flows)}"
                yield where.says(message, at_key=True)
            yield from _backbone_settings(overlay.flow, where)


def _misplaced(part: Settings, kind: Kind, where: Where) -> Iterator[Finding]:
    """Keys that a suite of this kind would not use; a setting without effect must not pass for one with."""
    for name in sorted(part.model_fields_set):
        used_by = _USED_BY.get((type(part), name))
        inside = where.inside(name)
        if used_by is not None and kind not in used_by:
            kinds = " or ".join(sorted(used_by))
            yield inside.says(f"{name}: has no effect in a suite of kind {kind}, only of kind {kinds}; remove it", True)
            continue
        value = getattr(part, name)
        inner = value.items() if isinstance(value, dict) else ()
        for key, item in inner:
            if isinstance(item, Overlay | DataEntry):
                yield from _misplaced(item, kind, inside.inside(key))
        if kind == "density" and isinstance(value, Timing) and "processes" in value.model_fields_set:
            message = "timing.processes: has no effect in a suite of kind density, only of kind runtime; remove it"
            yield inside.inside("processes").says(message, True)
        if kind == "runtime" and isinstance(value, Timing) and "batch" in value.model_fields_set:
            message = "timing.batch: has no effect in a suite of kind runtime, whose sweeps give it; remove it"
            yield inside.inside("batch").says(message, True)
        if kind == "parameters" and isinstance(value, FlowSettings) and "width" in value.model_fields_set:
            message = "flow.width: has no effect in a suite of kind parameters; give the profile widths: [...]"
            yield inside.inside("width").says(message, True)


def _misplaced_overrides(scope: Scope) -> Iterator[Finding]:
    for finding in _misplaced(scope.overrides.profile, scope.suite.kind, Where(())):
        yield scope.overrides.where(finding.place).says(finding.message)
