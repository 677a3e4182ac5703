"""Which event shapes a suite's layers meet, and whether they can serve them: each is built, once."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import torch

from flows import UnsupportedEvent, level_shapes, seeded
from flows.baselines import BASELINES, MissingLibrary, baseline_options, build_baseline, find_baseline
from harness.core.errors import UserError
from harness.core.layer_classes import option_errors, resolve_layer
from harness.core.settings import LayerRef
from harness.datasets import find_dataset
from harness.planning.resolve import Cell, Scope, Where, cells, column_of
from harness.planning.suite_errors import Finding
from layers import InvertibleLinear, UnsupportedShape

Shape = tuple[int, ...]


def event_shapes(scope: Scope, column: str) -> list[Shape]:
    """The event shapes of a column: the data's, or those of a sweep.

    Raises:
        UserError: there is no such data set, or its options are wrong.
    """
    if scope.suite.kind == "runtime":
        return list(scope.profile.sweeps[column].shapes)
    data = column_of(scope, column)
    if data.entry.shape is not None:
        return [data.entry.shape]
    dataset = find_dataset(data.entry.data or column, scope.suite.folder)
    dataset.parse(data.options)
    return [dataset.event_shape(data.options)]


def cell_faults(one: Cell) -> list[tuple[str, str]]:
    """(option, message) of what is wrong with a cell's options; none where there is no such layer or baseline."""
    options = dict(one.layer.options)
    if one.layer.baseline:
        if one.layer.layer not in BASELINES:
            return []
        cls = find_baseline(one.layer.layer)
        return option_errors(cls, options, baseline_options(cls))
    layer = layer_class(one)
    return option_errors(layer, options) if layer else []


def layer_class(one: Cell) -> type[InvertibleLinear] | None:
    """The cell's layer, or None where there is no such layer."""
    try:
        return resolve_layer(one.layer.layer)
    except UserError:
        return None


def shape_findings(scopes: Iterable[Scope], only: Container[tuple[str, str]] | None = None) -> list[Finding]:
    """Build every layer on every shape that it meets; faults that `scope_findings` tells are left to it.

    Args:
        scopes: the profiles to look at.
        only: the (column, row) pairs to look at; None: all.

    Returns:
        One finding per cause, with all the cells that it hits.
    """
    verdicts: dict[tuple[Any, ...], str | None] = {}
    hit: dict[tuple[Where, bool, str, str], list[str]] = {}
    for scope in scopes:
        for one in cells(scope):
            if only is not None and (one.column, one.row) not in only:
                continue
            if one.layer.baseline:
                verdict = _baseline_verdict(scope, one)
                if verdict is not None:
                    hit.setdefault((one.where, False, one.row, verdict), []).append(f"{scope.name} {one.column}")
                continue
            cls = layer_class(one)
            if cls is None or cell_faults(one):
                continue
            fault = _oracle_fault(scope, one)
            if fault is not None:
                hit.setdefault((one.where, False, one.row, fault), []).append(f"{scope.name} {one.column}")
                continue
            try:
                shapes = _shapes_of_layer(scope, one)
            except UnsupportedEvent as error:
                key = "sweeps" if scope.suite.kind == "runtime" else "datasets"
                cause = (Where((*scope.place, key, one.column)), True, one.column, str(error))
                hit.setdefault(cause, []).append(scope.name)
                continue
            except UserError:
                continue
            for shape in shapes:
                built = (cls, repr(one.layer.options), shape)
                if built not in verdicts:
                    verdicts[built] = _verdict(one.layer, cls, shape, accept=scope.suite.unsupported)
                verdict = verdicts[built]
                if verdict is not None:
                    cause = (one.where, False, f"{one.row} on events {shape}", verdict)
                    hit.setdefault(cause, []).append(f"{scope.name} {one.column}")
                    break
    return [
        where.says(f"{what} ({', '.join(dict.fromkeys(places))}): {why}", at_key)
        for (where, at_key, what, why), places in hit.items()
    ]


def _oracle_fault(scope: Scope, one: Cell) -> str | None:
    if scope.suite.kind != "density" or scope.suite.unsupported:
        return None
    fault = one.layer.oracle_fault(column_of(scope, one.column).entry.permute)
    return fault and f"{fault}, or say `unsupported: true` in the suite for a row that says so"


def _baseline_verdict(scope: Scope, one: Cell) -> str | None:
    """Why a baseline cannot be built for its column, or None; a missing library is no fault of the suite."""
    if one.layer.layer not in BASELINES or cell_faults(one):
        return None
    try:
        shapes = event_shapes(scope, one.column)
    except UserError:
        return None
    size, options = one.flow, dict(one.layer.options)
    for shape in shapes:
        try:
            with torch.device("meta"):  # shapes alone: nothing is drawn or computed
                build_baseline(one.layer.layer, shape, size.levels, size.steps, size.width, 0, options)
        except MissingLibrary:
            return None
        except UnsupportedEvent as error:
            if not scope.suite.unsupported:
                return f"{error}; with `unsupported: true` in the suite such a cell is a row that says so"
        except ValueError as error:
            return f"cannot be built: {error}"
    return None


def _verdict(layer: LayerRef, cls: type[InvertibleLinear], shape: Shape, *, accept: bool) -> str | None:
    """Why the layer cannot be built for this shape, or None."""
    try:
        with seeded(0, layer.row):
            cls(shape, **dict(layer.options))
    except UnsupportedShape as error:
        return None if accept else f"{error}; with `unsupported: true` in the suite such a cell is a row that says so"
    except Exception as error:  # the layer may be anybody's: whatever its constructor raises is worth telling
        return f"cannot be built: {type(error).__name__}: {error}"
    return None


def _shapes_of_layer(scope: Scope, one: Cell) -> list[Shape]:
    shapes = event_shapes(scope, one.column)
    if scope.suite.kind in ("runtime", "examination"):
        return shapes
    return [inner for shape in shapes for inner in level_shapes(shape, one.flow.levels)]
