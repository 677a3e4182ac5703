"""Check a layer by every rule of the interface, on several event shapes, in both precisions."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from harness.checking import global_checks, layer_checks, layer_module_checks, training_checks
from harness.checking.events import Begins, Collector, Done, Rules, Served, Tell, bounded
from harness.checking.global_checks import SettingsWatch
from harness.checking.large_checks import EXACT_LIMIT, LARGE_SHAPES, SMALL, large_events, smaller_shapes
from harness.checking.layer_case import LayerCase
from harness.checking.layer_checks import Check
from harness.checking.report import CONSTRUCTION, CheckReport, Remark, Unanswered
from harness.core.flags import full_float32
from harness.core.layer_classes import check_options, import_layer
from harness.core.provenance.environment import package_version
from layers import InvertibleLinear, UnsupportedShape

SHAPES: tuple[tuple[int, ...], ...] = (
    (4, 4, 4),
    (3, 5, 4),
    (2, 3, 7),
    (1, 4, 6),
    (8, 2, 2),
    (6, 1, 1),
    (16, 1),
    (2, 64),
    (4, 8),
    (3, 7),
    (1, 8),
    (5, 1),
)
"""Powers of two, odd sizes, rectangles, one channel, one position, many of either; images, sequences and vectors."""

DTYPES = (torch.float64, torch.float32)

SLOW = {
    layer_checks.gradients,
    layer_module_checks.batches,
    *training_checks.CHECKS,
    large_events,
    global_checks.global_settings,  # after all others, whose changes of settings it reports
}
"""Checks that come last, so that a check that runs out of time has answered the others."""

CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in sorted(
        (
            *layer_checks.CHECKS,
            *layer_module_checks.CHECKS,
            *training_checks.CHECKS,
            large_events,
            *global_checks.CHECKS,
        ),
        key=SLOW.__contains__,
    )
}
"""Name -> check of every rule, in the order in which they are checked and reported."""


def check_layer(
    spec: str,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    large: bool = True,
    batches: Sequence[int] = (),
    device: str = "cpu",
    tell: Tell | None = None,
) -> CheckReport:
    """Run every check on every one of `shapes` that the layer serves.

    This imports the layer and runs it in this process; `harness.checking.isolated` does so in another.

    Args:
        spec: a registered name, ``FILE.py:CLASS`` or ``package.module:CLASS``.
        options: options of the layer's constructor.
        folder: searched for a relative FILE.py before the working directory.
        shapes: event shapes to try. On those of more than `SMALL` entries only the rule on large events is checked, as
            the others build D x D matrices; if the layer serves no smaller one, all rules are checked on the smallest.
        large: whether to check `LARGE_SHAPES` too; each that the layer refuses is replaced by the largest one tried
            that it serves.
        batches: sizes of batches to try besides those of the rules.
        device: where to run, such as "cuda"; cases are in float64 there, and full float32 is used, as in a trial.
        tell: callback for each event of the check, such as the start or the end of a rule on a case.

    Raises:
        UserError: the layer or one of its options does not exist.
    """
    collector = Collector(spec, tell)
    dtypes = DTYPES if device == "cpu" else (torch.float64,)
    precisions = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    versions = {"torch": str(torch.__version__), "invertbench": package_version("invertbench")}
    large_shapes = [*(LARGE_SHAPES if large else ()), *(shape for shape in shapes if math.prod(shape) > SMALL)]
    names = [name for name, check in CHECKS.items() if large_shapes or check is not large_events]
    collector.take(Rules(rules=[CONSTRUCTION, *names], dtypes=precisions, versions=versions))
    collector.take(Begins(rule=CONSTRUCTION, place="import"))
    if device != "cpu":
        full_float32()
    watch = SettingsWatch()
    cls = import_layer(spec, folder)
    watch.look("import")
    options = check_options(cls, options or {})
    served, refused = _try_shapes(cls, options, shapes, collector, watch)
    small = [shape for shape in served if math.prod(shape) <= SMALL]
    if not small:
        small = sorted((shape for shape in served if math.prod(shape) <= EXACT_LIMIT), key=math.prod)[:1]
    cases = [
        LayerCase(cls, shape, dtype, options, device, training, tuple(batches))
        for shape, dtype, training in product(small, dtypes, (True, False))
    ]
    sound: list[LayerCase] = []  # cases on which forward, the first check, passes; the other checks need it
    for name in names:
        if CHECKS[name] is large_events:
            if sound or (served and not cases):
                large_cases = [
                    LayerCase(cls, shape, torch.float64, options, device, training=False, batches=tuple(batches))
                    for shape in sorted(set(large_shapes) - refused, key=math.prod)
                ]
                _check_large(large_cases, collector)
                watch.look(name)
            continue
        for case in cases if name == "forward" else sound:
            collector.take(Begins(rule=name, place=str(case)))
            faulty = collector.answer(run_check(name, case))
            if name == "forward" and not faulty:
                sound.append(case)
            watch.look(f"{name}, {case}")
        if CHECKS[name] is global_checks.global_settings:
            watch.report(collector)
    collector.take(Done())
    return collector.report()


def _try_shapes(
    cls: type[InvertibleLinear],
    options: Mapping[str, Any],
    shapes: Sequence[tuple[int, ...]],
    collector: Collector,
    watch: SettingsWatch,
) -> tuple[list[tuple[int, ...]], set[tuple[int, ...]]]:
    """Return the shapes that a layer serves and those that it refuses; others have a fault of construction."""
    served, refused, faulty = [], set(), False
    for shape in shapes:
        collector.take(Begins(rule=CONSTRUCTION, place=f"shape {shape}"))
        reason, faults = construct(cls, shape, options)
        faulty |= collector.answer(faults)
        if reason is not None or not faults:
            collector.take(Served(shape=list(shape), refusal=None if reason is None else bounded(reason)))
        if reason is not None:
            refused.add(shape)
        elif not faults:
            served.append(shape)
        watch.look(f"construction, shape {shape}")
    if not served and not faulty:
        collector.take(Begins(rule=CONSTRUCTION, place="all shapes"))
        collector.answer(["the layer serves none of the shapes tried"])
    return served, refused


def _check_large(cases: Sequence[LayerCase], collector: Collector) -> None:
    """Check large events in the order of the cases until one has a fault or takes too long; name those left then."""
    checked: set[tuple[int, ...]] = set()
    slow = False
    collector.take(Begins(rule="large-events", place="all shapes"))
    for case in cases:
        collector.take(Begins(rule="large-events", place=str(case)))
        if slow:
            collector.answer([Unanswered("not tried, as there is no answer on smaller events")])
            continue
        reason, _ = construct(case.cls, case.shape, case.options)
        if reason is not None:
            tried = smaller_shapes(case.shape)
            shape = next((shape for shape in tried if construct(case.cls, shape, case.options)[0] is None), None)
            instead = f"{shape} is checked instead, the largest" if shape else "so are all"
            collector.answer([Remark(f"refused: {reason}; {instead} of {len(tried)} shapes tried")])
            if shape is None or shape in checked:
                continue
            case = replace(case, shape=shape)
            collector.take(Begins(rule="large-events", place=str(case)))
        checked.add(case.shape)
        found = run_check("large-events", case)
        if collector.answer(found):
            return
        slow = any(isinstance(message, Unanswered) for message in found)


def construct(
    cls: type[InvertibleLinear], shape: tuple[int, ...], options: Mapping[str, Any]
) -> tuple[str | None, list[str]]:
    """Try a shape; return the reason for a refusal (None if the layer serves it), and the faults of construction."""
    try:
        cls(shape, **options)
    except UnsupportedShape as error:
        named = {str(size) for size in (*shape, math.prod(shape), math.prod(shape[1:]))}
        if any(size in str(error) for size in named):
            return str(error), []
        return str(error), [f"the refusal names no size of the shape: {str(error)!r}"]
    except (Exception, SystemExit) as error:
        return None, [_describe(error, cls)]
    return None, []


def run_check(name: str, case: LayerCase) -> list[str]:
    """Return the faults that one check finds on one case; an exception from the layer is a fault like any other."""
    found: list[str] = []
    try:
        found.extend(CHECKS[name](case))
    except (Exception, SystemExit) as error:
        found.append(_describe(error, case.cls))
    return found


def _describe(error: BaseException, cls: type[InvertibleLinear]) -> str:
    """Return an exception as text, with the deepest line of the layer's own file in its traceback."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == inspect.getfile(cls)]
    place = f" at {own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else ""
    return f"{type(error).__name__}{place}: {error}"
