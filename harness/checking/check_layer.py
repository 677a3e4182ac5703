"""Check a layer by every rule of the interface, on several event shapes, in both precisions."""

from __future__ import annotations

import contextlib
import inspect
import math
import signal
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch

from harness.checking import global_checks, layer_checks, layer_module_checks, training_checks
from harness.checking.events import Done, Rules, Served, Tell
from harness.checking.large_checks import (
    EVENTS,
    EXACT_LIMIT,
    FULL_LIMIT,
    LARGE_SHAPES,
    SLOWEST_PASS,
    SMALL,
    forms_matrix,
    halved_shapes,
    large_events,
    pass_seconds,
    smaller_shapes,
)
from harness.checking.layer_case import LayerCase
from harness.checking.layer_checks import Check
from harness.checking.report import CONSTRUCTION, CheckReport, Remark
from harness.core.arguments import checked, optional, path
from harness.core.flags import full_float32
from harness.core.global_settings import GlobalSettings
from harness.core.layer_classes import check_options, import_layer
from harness.core.provenance.environment import package_version
from harness.core.texts import bounded
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

SLOWEST_CASE = 15.0  # processor seconds of the rule on one large event, after which no larger one is tried
LONGEST_CASE = 60.0  # processor seconds of the same, after which an event that nobody has asked for is left out
SLOWEST_BUILD = 15.0  # processor seconds to build a dense layer, which a brief check does three times

SLOW: tuple[Check, ...] = (
    layer_checks.gradients,
    layer_module_checks.batches,
    *training_checks.CHECKS,
    large_events,
    global_checks.global_settings,  # after all others, whose changes of settings it reports
)
"""Checks that come last, so that a check that runs out of time has answered the others."""

CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (*layer_checks.CHECKS, *layer_module_checks.CHECKS, global_checks.memory, *SLOW)
}
"""Name -> check of every rule, in the order in which they are checked and reported."""


@checked
def check_layer(
    spec: str,
    options: Mapping[str, Any] | None = None,
    folder: Annotated[Path | None, optional(path, str | Path)] = None,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    extra: Sequence[tuple[int, ...]] = (),
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
        extra: shapes to try besides these.
        large: whether to check `LARGE_SHAPES` too; each that the layer refuses is replaced by the largest one tried
            that it serves.
        batches: sizes of batches to try besides those of the rules.
        device: where to run, such as "cuda"; cases are in float64 there, and full float32 is used, as in a trial.
        tell: callback for each event of the check, such as the start or the end of a rule on a case.

    Raises:
        UserError: the layer or one of its options does not exist.
    """
    report, shapes = CheckReport(spec, tell=tell), list(dict.fromkeys([*shapes, *extra]))
    dtypes = DTYPES if device == "cpu" else (torch.float64,)
    large_shapes = {*(LARGE_SHAPES if large else ()), *(shape for shape in shapes if math.prod(shape) > SMALL)}
    names = [name for name, check in CHECKS.items() if large_shapes or check is not large_events]
    report.take(
        Rules(
            rules=[CONSTRUCTION, *names],
            dtypes=[str(dtype).removeprefix("torch.") for dtype in dtypes],
            versions={"torch": str(torch.__version__), "invertbench": package_version("invertbench")},
        )
    )
    report.begin(CONSTRUCTION, "import")
    if device != "cpu":
        full_float32()
    settings, seen = GlobalSettings(), set[str]()

    def look(at: str, functions: bool = True) -> None:
        """Undo changes of global settings, and report each once, and at once: the time of the check may run out."""
        changes = [change for change in settings.restore(functions) if change not in seen]
        if changes:
            seen.update(changes)
            report.begin("global-settings", at)
            report.answer([f"{change}; {global_checks.HINT}" for change in changes])

    cls = import_layer(spec, folder)
    look("import")
    options = check_options(cls, options or {})
    for shape in shapes:
        report.begin(CONSTRUCTION, f"shape {shape}")
        refusal, faults = construct(cls, shape, options)
        report.answer(faults)
        if refusal is not None or not faults:
            report.take(Served(shape=list(shape), refusal=None if refusal is None else bounded(refusal)))
        look(f"construction, shape {shape}")
    if not report.served and not report.faults:
        report.begin(CONSTRUCTION, "all shapes")
        report.answer(["the layer serves none of the shapes tried"])
    small = [shape for shape in report.served if math.prod(shape) <= SMALL]
    if not small:
        small = sorted((shape for shape in report.served if math.prod(shape) <= EXACT_LIMIT), key=math.prod)[:1]
    cases = [
        LayerCase(cls, shape, dtype, options, device, training, tuple(batches))
        for shape, dtype, training in product(small, dtypes, (True, False))
    ]
    sound: list[LayerCase] = []  # cases on which forward, the first check, passes; the other checks need it
    for name in names:
        if CHECKS[name] is large_events:
            if sound or (report.served and not cases):
                case = LayerCase(cls, (), torch.float64, options, device, training=False, batches=tuple(batches))
                large_cases = [replace(case, shape=shape) for shape in large_shapes - report.refused.keys()]
                _check_large(sorted(large_cases, key=lambda case: case.dim), report, shapes)
                look(name)
            continue
        for case in cases if name == "forward" else sound:
            report.begin(name, case)
            faulty = report.answer(run_check(name, case))
            if name == "forward" and not faulty:
                sound.append(case)
            look(f"{name}, {case}", functions=False)
        look(name)
    report.take(Done())
    return report


def _check_large(cases: Sequence[LayerCase], report: CheckReport, asked: Collection[tuple[int, ...]]) -> None:
    """Check large events in the order of the cases until one has a fault or takes too long, then a smaller one instead.

    A layer that forms a matrix of D x D entries, on the first of them, is checked briefly or not at all on those that
    nobody has `asked` for, from the size on where each pass would take a second.
    """
    checked: set[tuple[int, ...]] = set()
    slow, dense, seconds = False, None, 0.0  # processor time to build a dense layer and apply it, per D**3
    report.begin("large-events", "all shapes")
    for case in cases:
        report.begin("large-events", case)
        if slow:
            report.answer([Remark("not tried, as smaller events are slow already")])
            continue
        brief = bool(dense) and case.dim > FULL_LIMIT and case.shape not in asked
        if brief and (case.dim > EXACT_LIMIT or seconds * case.dim**3 > SLOWEST_BUILD):
            report.answer([Remark(f"not tried: every pass forms a matrix of D x D = {case.dim**2:,} entries")])
            continue
        refusal, _ = construct(case.cls, case.shape, case.options)
        if refusal is not None:
            tried = smaller_shapes(case.shape)
            shape = next((shape for shape in tried if construct(case.cls, shape, case.options)[0] is None), None)
            instead = f"{shape} is checked instead, the largest" if shape else "so are all"
            report.answer([Remark(f"refused: {refusal}; {instead} of {len(tried)} shapes tried")])
            if shape is None or shape in checked:
                continue
            case = replace(case, shape=shape)
            report.begin("large-events", case)
        spent = pass_seconds(case) if case.shape not in checked else 0.0
        if spent > SLOWEST_PASS and not brief:
            slow = True
            halved = [replace(case, shape=shape) for shape in halved_shapes(case.shape)]
            halved = [other for other in halved if construct(case.cls, other.shape, case.options) == (None, [])]
            faster = next((other for other in halved if pass_seconds(other) <= SLOWEST_PASS), None)
            instead = f"{faster.shape} is checked instead" if faster else f"only up to {SMALL} entries are checked"
            limit = f"takes {spent:.1f} s, and the limit is {SLOWEST_PASS} s"
            report.answer([Remark(f"not tried: a forward pass of {EVENTS} events {limit}; {instead}")])
            if faster is None or faster.shape in checked:
                continue
            case = faster
            report.begin("large-events", case)
        checked.add(case.shape)
        if dense is None:
            begin = time.process_time()
            with contextlib.suppress(Exception, SystemExit):  # the rule reports it
                dense = forms_matrix(case)
            seconds = (time.process_time() - begin) / case.dim**3
        case = replace(case, brief=brief and case.dim > FULL_LIMIT)
        begin = time.process_time()
        try:
            with _limited(math.inf if case.shape in asked else LONGEST_CASE):
                found = run_check("large-events", case)
        except _OutOfTime:
            slow, found = True, [Remark(f"left out: the rule takes more than {LONGEST_CASE:g} s of processor time")]
        if report.answer(found):
            return
        slow = slow or time.process_time() - begin > SLOWEST_CASE


class _OutOfTime(BaseException):
    """The time of a case is over; not an Exception, which layers and rules catch."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_OutOfTime` after so much processor time; without a limit in other threads, which get no signals."""
    if math.isinf(seconds) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _OutOfTime

    usual = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)


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
    messages: list[str] = []
    try:
        messages.extend(CHECKS[name](case))
    except (Exception, SystemExit) as error:
        messages.append(_describe(error, case.cls))
    return messages


def _describe(error: BaseException, cls: type[InvertibleLinear]) -> str:
    """Return an exception as text, with the deepest line of the layer's file in its traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == inspect.getfile(cls)]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{place}: {error}"
