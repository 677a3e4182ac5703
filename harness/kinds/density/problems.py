"""Problems that only suites which train flows can have; each function yields those of one profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError, nearest
from harness.core.explain import Problem
from harness.core.settings import Scaling, augmentation_fault
from harness.planning.cells import Column, Scope, Where

if TYPE_CHECKING:
    from harness.datasets import Dataset


def mixer_problems(scope: Scope) -> Iterator[Problem]:
    """Yield rows in which `keep_mixer` has no effect."""
    for cell in scope.every_cell:
        if not cell.layer.keep_mixer:
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
    """Yield flows of too few steps for their backbone, and settings that no flow of the profile takes."""
    from harness.pipeline.models import backbone_of  # imports torch

    used: set[Where] = set()
    unused: dict[Where, str] = {}
    for cell in scope.every_cell:
        if cell.layer.baseline:
            continue
        flow, backbone = cell.settings.flow, backbone_of(cell.settings.flow)
        tuned = cell.settings.tuning.space.get("flow.steps")
        fewest = min([flow.steps, *(() if tuned is None else tuned.ends)])
        if fewest < backbone.least_steps:
            yield (cell.place("flow", "steps") or cell.where).says(
                f"flow.steps: {fewest}, and the backbone {flow.backbone} takes at least {backbone.least_steps}"
            )
        taken = {"backbone", *backbone.settings(), *["mixer"] * (backbone.mixed or cell.layer.keep_mixer)}
        chosen = cell.place("flow", "backbone")
        for name in type(flow).model_fields:
            place = cell.place("flow", name)
            if place is not None and name in taken:
                used.add(place)
            elif place is not None and (_inside(place) or not (chosen is None or _inside(chosen))):
                but = ", but for rows with keep_mixer" * (name == "mixer")
                unused[place] = f"flow.{name}: has no effect on the backbone {flow.backbone}{but}; remove it"
                beside = chosen is not None and chosen.place[:-1] == place.place[:-1]
                if beside and name != "mixer":  # no row of this backbone can take it
                    yield place.says(unused.pop(place), at_key=True)
    for place, message in unused.items():
        if place not in used:
            yield place.says(message, at_key=True)


def _inside(place: Where) -> bool:
    """Return whether a setting is a profile's, so that no other profile may use it."""
    return place.origin is not None or place.place[:1] == ("profiles",)


def encoding_problems(column: Column) -> Iterator[Problem]:
    """Yield raw lattice values, and encodings that the data set does not support."""
    entry, dataset = column.entry, column.dataset
    if dataset.info.lattice and not entry.dequantise and not entry.allow_unbounded:
        yield column.place("dequantise").says(
            f"{column.label}: dequantise: false, but the values of {column.name} lie on a lattice, where a density can "
            "grow without bound and no likelihood means anything; remove the setting, or say allow_unbounded: true to "
            "train on raw values all the same"
        )
    kind = dataset.kind(column.entry.options)
    if entry.preprocessing != "scale" and (entry.preprocessing == "logit") != (kind == "image"):
        whose = "pixels" if entry.preprocessing == "logit" else "sequences and vectors"
        stated = entry.preprocessing if isinstance(entry.preprocessing, str) else "for each channel"
        yield column.place("preprocessing").says(
            f"{column.label}: preprocessing: {stated} is for {whose}, and {column.name} holds {kind}s; use scale"
        )
    elif not isinstance(entry.preprocessing, str):
        origin = column.scope.suite.origin
        try:
            scalings(entry.preprocessing, dataset, dataset.located(entry.options, origin.folder, origin.data))
        except UserError as error:
            yield column.place("preprocessing").says(f"{column.label}: {error}")
    fault = augmentation_fault(entry.augmentation, column.event_shape)
    if fault is not None:
        yield column.place("augmentation").says(f"{column.label}: {fault}")


def scalings(
    stated: Sequence[Scaling] | Mapping[str, Scaling], dataset: Dataset, options: Mapping[str, Any]
) -> Scaling | tuple[Scaling, ...]:
    """Return the scaling of all channels if they share it, else one for each; `options` have the place of the data.

    Raises:
        UserError: a list of another length than the channels, or a column that the data do not have.
    """
    names, count = dataset.channels(options), dataset.event_shape(options)[0]
    if isinstance(stated, Mapping):
        for name in stated:
            if name not in names:
                hint = (
                    nearest(name, names) if names else f"the channels have no names: list one for each of the {count}"
                )
                raise UserError(f"preprocessing: there is no column {name!r} among those that are used; {hint}")
        stated = [stated.get(name, "scale") for name in names]
    if len(stated) != count:
        raise UserError(
            f"preprocessing: {len(stated)} scalings for {count} channels; state one for each, or one for all"
        )
    return stated[0] if len({*stated}) == 1 else tuple(stated)


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
        if len({column.dataset.kind(column.entry.options) for column in columns}) > 1:
            yield where.says(f"averages.{label}: bits/dim of images and nats/dim of sequences have no common mean")


def sample_problems(scope: Scope) -> Iterator[Problem]:
    """Yield columns of sequences whose samples a setting would compare as images."""
    for cell in scope.every_cell:
        column = scope.data[cell.column]
        if column.dataset.kind(column.entry.options) == "image":
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
