"""Problems that only suites which train flows can have; each function yields those of one profile."""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.errors import nearest
from harness.core.settings import augmentation_fault
from harness.planning.cells import Column, Scope
from harness.planning.problems import Problem, Where


def mixer_problems(scope: Scope) -> Iterator[Problem]:
    """Yield rows in which `keep_mixer` has no effect."""
    for cell in scope.every_cell:
        if not cell.layer.keep_mixer or cell.subject is None:
            continue
        place = scope.rows[cell.row][1].at(("keep_mixer",))
        if not cell.subject.replaces_mixer:
            yield place.says(
                f"{cell.row}: keep_mixer has no effect, as {cell.layer.layer} does not replace the mixer; remove it"
            )
        elif cell.settings.flow.mixer == "none":
            yield place.says(
                f"{cell.row}: keep_mixer has no effect on {cell.column}, where flow.mixer is none; give plu, qr or "
                "dense, or remove it"
            )


def backbone_problems(scope: Scope) -> Iterator[Problem]:
    """Yield settings that have no effect between autoregressive blocks, and flows of fewer than two of them."""
    for cell in scope.every_cell:
        flow = cell.settings.flow
        if flow.backbone != "autoregressive" or cell.layer.baseline:
            continue
        for name in ("coupling", "prior", "split_step"):
            place = cell.place("flow", name)
            if place is not None:
                yield place.says(f"flow.{name}: has no effect on the backbone autoregressive; remove it", at_key=True)
        if flow.steps < 2:
            yield (cell.place("flow", "steps") or cell.where).says(
                f"flow.steps: {flow.steps}, but layers stand between autoregressive blocks; give at least 2"
            )


def unused_problems(scope: Scope) -> Iterator[Problem]:
    """Yield a turn or a mixer that a profile or --set gives, and that no flow of the profile uses."""
    used: set[tuple[str, Where]] = set()
    unused: set[tuple[str, Where]] = set()
    for cell in scope.every_cell:
        if cell.layer.baseline:
            continue
        blocks = cell.settings.flow.backbone == "autoregressive"
        for name, uses in (("turn", blocks), ("mixer", not blocks or cell.layer.keep_mixer)):
            place = cell.place("flow", name)
            if place is not None:
                (used if uses else unused).add((name, place))
    where = {"turn": "in Glow", "mixer": "between autoregressive blocks, but for rows with keep_mixer"}
    for name, place in unused - used:
        if place.origin is not None or place.place[:1] == ("profiles",):  # other profiles may use what a suite says
            yield place.says(f"flow.{name}: has no effect {where[name]}; remove it", at_key=True)


def encoding_problems(column: Column) -> Iterator[Problem]:
    """Yield raw lattice values, and encodings that the data set does not support."""
    entry, dataset = column.entry, column.dataset
    if dataset is None:
        return
    if dataset.info.lattice and not entry.dequantise and not entry.allow_unbounded:
        yield column.place("dequantise").says(
            f"{column.label}: dequantise: false, but the values of {column.name} lie on a lattice, where a density can "
            "grow without bound and no likelihood means anything; remove the setting, or say allow_unbounded: true to "
            "train on raw values all the same"
        )
    if entry.preprocessing == "logit" and dataset.kind(column.entry.options) != "image":
        yield column.place("preprocessing").says(
            f"{column.label}: preprocessing: logit is for pixels, and {column.name} holds sequences; use scale"
        )
    fault = augmentation_fault(entry.augmentation, dataset.event_shape(column.entry.options))
    if fault is not None:
        yield column.place("augmentation").says(f"{column.label}: {fault}")


def average_problems(scope: Scope) -> Iterator[Problem]:
    """Yield averages of columns that do not exist, or that have no common unit."""
    for label, members in scope.profile.averages.items():
        where = scope.at("averages", label)
        if label in scope.columns:
            message = f"averages: {label!r} is a data set of profiles.{scope.name}; name the average otherwise"
            yield where.says(message, at_key=True)
        if len(set(members)) < len(members):
            yield where.says(f"averages.{label}: names a data set twice; each counts once")
        for member in members:
            if member not in scope.columns:
                hint = nearest(member, scope.columns)
                yield where.says(f"averages.{label}: profiles.{scope.name} has no data set {member!r}; {hint}")
        columns = [scope.data[member] for member in members if member in scope.columns]
        if len({column.dataset.kind(column.entry.options) for column in columns if column.dataset is not None}) > 1:
            yield where.says(f"averages.{label}: bits/dim of images and nats/dim of sequences have no common mean")


def sample_problems(scope: Scope) -> Iterator[Problem]:
    """Yield columns of sequences whose samples a setting would compare as images."""
    for cell in scope.every_cell:
        column = scope.data[cell.column]
        if column.dataset is None or column.dataset.kind(column.entry.options) == "image":
            continue
        if cell.settings.training.samples is not None:
            message = (
                f"{column.label}: training.samples compares images, and {column.name} holds sequences; ask for them of "
                "images alone, or not of this data set: training: {samples: null}"
            )
            place = cell.place("training", "samples")
            yield (place if place and place.origin else column.where).says(message, at_key=True)


def accounting_problems(scope: Scope) -> Iterator[Problem]:
    """Yield a training on values that are no log-determinants."""
    for cell in scope.every_cell:
        if cell.settings.training.accounting != "true":
            message = (
                "training.accounting: the value of the released code is no log-determinant, and gives no likelihood; "
                "only a suite that one of kind claims names may train on it (python -m harness run claims); remove it"
            )
            yield (cell.place("training", "accounting") or scope.where).says(message, at_key=True)
