"""Check a layer in a separate process, so that its end, a hang or its output cannot be mistaken for an answer.

This protects against faults, not against malice: the layer shares its process with the checks, and could forge them.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from harness.checking.events import Event, Wrong, event_of
from harness.checking.report import CheckReport
from harness.core.errors import Undecided, UserError
from harness.core.isolation.messages import BadMessage, send
from harness.core.isolation.process import Child, Context, ending_text, log_tail, start, start_server
from harness.core.run_options import CHECK_SECONDS, shown_seconds
from harness.core.texts import bounded, shortened, visible

PRELOAD = ("torch", "harness.checking.check_layer", "harness.core.preload_kernels")
LOOK_SECONDS = 0.5  # between two looks at the length of the log
LOG_LINES, LOG_WIDTH = 20, 300  # limits of the displayed part of the process's log


def start_check_server() -> Context:
    """Start the fork server with the imports of checks (see `harness.core.isolation.process.start_server`)."""
    return start_server(PRELOAD)


def check_in_process(
    spec: str,
    options: Mapping[str, Any],
    folder: Path | None = None,
    timeout: float = CHECK_SECONDS,
    show: Callable[[list[str]], None] | None = None,
    **extent: Any,
) -> CheckReport:
    """Run every check of a layer in a separate process.

    If the process ends before every rule was answered, for whatever reason, the report is not ok, says how the process
    ended, and includes its output. A check that is ended after `timeout` is undecided, unless it has found a fault: a
    hang cannot be distinguished from a slow machine.

    Args:
        spec, options, folder: see `harness.checking.check_layer.check_layer`.
        timeout: seconds after which the check is ended.
        show: callback for the lines of the report above `CheckReport.closing`, each rule's as soon as it is answered.
        extent: `shapes`, `extra`, `large` and `batches` of `check_layer`; by default those of the command check-layer.

    Raises:
        UserError: the layer or one of its options does not exist.
    """
    context = start_check_server()
    report = CheckReport(spec)
    with tempfile.TemporaryDirectory(prefix="invertbench-check-") as place:
        log = Path(place) / "log"
        child = start(context, _check, (spec, dict(options), folder, extent), log=log, name=f"check {spec}")
        begin = time.monotonic()
        try:
            how, report.overtime = _listen(child, report, begin, timeout, show)
        finally:
            child.end()
            child.clear()
            child.messages.connection.close()
        if report.wrong is not None:
            raise UserError(report.wrong)
        report.seconds = time.monotonic() - begin
        if how:
            report.ended = f"check-layer {spec} ended early ({report.at}): {how}"
            lines = (log_tail(log, LOG_LINES) or "").split("\n")
            report.log = "\n".join(shortened(visible(line), LOG_WIDTH) for line in lines)
        return report


def try_imports(specs: Iterable[tuple[str, Path | None]]) -> None:
    """Ensure that importing third-party layers and data sets does not end the process.

    Other faults are ignored here: the plan reports them, with their place in the suite. Each of `specs` is a
    FILE.py:CLASS or package.module:CLASS with the folder where its file is looked for first.

    Raises:
        UserError: an import ended its process.
        Undecided: an import did not end in time.
    """
    for spec, folder in dict.fromkeys(specs):
        report = None
        with contextlib.suppress(UserError):
            report = check_in_process(spec, {}, folder, shapes=(), large=False)
        if report is not None and report.ended:
            raise Undecided(report.ended) if report.overtime else UserError(report.ended)


def _listen(
    child: Child, report: CheckReport, begin: float, timeout: float, show: Callable[[list[str]], None] | None
) -> tuple[str, bool]:
    """Receive the events until the check is over; return how it ended before that, or "", and whether by the clock."""
    numbers = itertools.count()
    while (left := begin + timeout - time.monotonic()) > 0:
        handles: list[Any] = [child.process.sentinel]
        if not child.messages.connection.closed:
            handles.append(child.messages.connection)
        ended = child.process.sentinel in wait(handles, min(left, LOOK_SECONDS))
        child.limit_log()
        try:
            for message in child.messages.receive():
                report.take(event_of(message, next(numbers)))
                if show is not None and (lines := report.news()):
                    show(lines)
        except BadMessage as error:
            return f"it wrote {error}, to the pipe of its messages, and was ended", False
        if report.over or report.wrong is not None:
            return "", False
        if ended:  # after reading the rest of the pipe, which one read can hold
            child.process.join()
            code = child.process.exitcode
            memory = "; if no user sent it, the system was out of memory" if code == -signal.SIGKILL else ""
            return f"{ending_text(code)} before every rule was answered{memory}", False
    return f"it took longer than {shown_seconds(timeout)}, the time limit (--timeout), and was ended", True


def _check(spec: str, options: dict[str, Any], folder: Path | None, extent: dict[str, Any], pipe: Connection) -> None:
    """The main function of the process."""
    import torch

    from harness.checking.check_layer import check_layer

    torch.set_num_threads(1)  # the tensors of most checks are small, and other work may share the cores

    numbers = itertools.count()

    def tell(event: Event) -> None:
        send(pipe, {"number": next(numbers), "event": event.model_dump()})

    try:
        check_layer(spec, options, folder, tell=tell, **extent)
    except UserError as error:
        tell(Wrong(message=bounded(str(error))))
