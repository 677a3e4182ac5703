"""Hold a layer against every rule of the interface, on several event shapes, in both precisions."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from harness.checking import layer_checks, layer_module_checks
from harness.checking.large_checks import LARGE_SHAPES, large_events
from harness.checking.layer_case import LayerCase, Remark
from harness.checking.layer_checks import Check
from harness.layer_files import check_options, resolve_layer
from layers import InvertibleLinear, UnsupportedShape

SHAPES: tuple[tuple[int, ...], ...] = (
    (4, 4, 4),
    (3, 5, 4),
    (2, 3, 7),
    (1, 4, 6),
    (6, 1, 1),
    (4, 8),
    (3, 7),
    (1, 8),
)
"""Powers of two, odd sizes, rectangles, one channel, one position; images and sequences."""

DTYPES = (torch.float64, torch.float32)

CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (*layer_checks.CHECKS, *layer_module_checks.CHECKS, large_events)
}
"""Name -> check of every rule, in the order in which they are reported."""


@dataclass(frozen=True)
class Finding:
    """One fault: the check that found it, the shape and precision it was found on, and what is wrong."""

    check: str
    place: str
    message: str


@dataclass(frozen=True)
class Report:
    """The outcome of all checks of one layer.

    Attributes:
        spec: the layer as the user named it.
        served: the shapes that the layer was checked on, each in every one of `dtypes`.
        refused: the layer's reason for each shape that it does not serve.
        findings: every fault, in the order of the checks.
    """

    spec: str
    served: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    refused: dict[tuple[int, ...], str]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Return True if no check found a fault."""
        return all(isinstance(finding.message, Remark) for finding in self.findings)

    def lines(self) -> list[str]:
        """The report as text: one line per check, and under a failed one its distinct faults."""
        lines = [f"{self.spec}: {len(self.served)} shapes, {' and '.join(map(_name, self.dtypes))}"]
        lines += [f"  not served  {shape}: {reason}" for shape, reason in self.refused.items()]
        failed = []
        for check in ("construction", *CHECKS):
            places: dict[str, list[str]] = {}
            for finding in self.findings:
                if finding.check == check:
                    places.setdefault(finding.message, []).append(finding.place)
            if places:
                failed.append(check)
                lines.append(f"  FAIL  {check}")
                lines += [f"          {_listed(where)}: {what}" for what, where in list(places.items())[:SHOWN]]
                if len(places) > SHOWN:
                    lines.append(f"          and {len(places) - SHOWN} more like these")
            elif self.served:
                lines.append(f"  pass  {check}")
        lines.append(f"{self.spec}: " + ("ok" if self.ok else f"{len(failed)} failed: {', '.join(failed)}"))
        return lines


SHOWN = 3
"""Distinct faults that a report shows for each check."""


def check_layer(
    spec: str,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    large: bool = True,
    device: str = "cpu",
) -> Report:
    """Run every check on every one of `shapes` that the layer serves.

    Args:
        spec: a registered name, ``FILE.py:CLASS`` or ``package.module:CLASS``.
        options: of the layer's constructor.
        folder: where a relative FILE.py is looked for before the working directory.
        shapes: event shapes to try; small, since a check builds D x D matrices.
        large: whether to go on to `LARGE_SHAPES`.
        device: where to run, such as "cuda"; float64 only there, since convolutions may round to TF32.

    Raises:
        UserError: there is no such layer, or it does not have these options.
    """
    cls = resolve_layer(spec, folder)
    options = check_options(cls, options or {})
    served, refused, findings = [], {}, []
    for shape in shapes:
        reason, faults = construct(cls, shape, options)
        if reason is not None:
            refused[shape] = reason
        elif not faults:
            served.append(shape)
        findings += [Finding("construction", f"shape {shape}", fault) for fault in faults]
    if not served and not findings:
        findings.append(Finding("construction", "all shapes", "the layer serves none of the shapes tried"))
    dtypes = DTYPES if device == "cpu" else (torch.float64,)
    cases = [
        LayerCase(cls, shape, dtype, options, device, training)
        for shape, dtype, training in product(served, dtypes, (True, False))
    ]
    sound = []  # where forward fails there is nothing to hold the rest against
    for case in cases:
        faults = run_check("forward", case)
        findings += [Finding("forward", str(case), fault) for fault in faults]
        if not faults:
            sound.append(case)
    for name in CHECKS:
        if name not in ("forward", "large-events"):
            findings += [Finding(name, str(case), fault) for case in sound for fault in run_check(name, case)]
    if sound and large:
        findings += _check_large(cls, options, device)
    return Report(spec, tuple(served), dtypes, refused, tuple(findings))


def _check_large(cls: type[InvertibleLinear], options: Mapping[str, Any], device: str) -> list[Finding]:
    """Check events of some thousand entries, smaller ones first, until one of them takes too long."""
    findings = []
    for shape in LARGE_SHAPES:
        reason, _ = construct(cls, shape, options)
        if reason is not None:
            continue
        case = LayerCase(cls, shape, torch.float64, options, device, training=False)
        found = run_check("large-events", case)
        findings += [Finding("large-events", str(case), fault) for fault in found]
        if found:
            break
    return findings


def construct(
    cls: type[InvertibleLinear], shape: tuple[int, ...], options: Mapping[str, Any]
) -> tuple[str | None, list[str]]:
    """Try a shape: the reason for a refusal (None where the layer serves it), and the faults of construction."""
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
    """The faults that one check finds on one case; an exception out of the layer is a fault like any other."""
    found = []
    try:
        for message in CHECKS[name](case):
            found.append(message)
    except (Exception, SystemExit) as error:
        found.append(_describe(error, case.cls))
    return found


def _describe(error: BaseException, cls: type[InvertibleLinear]) -> str:
    """An exception with the deepest line of the layer's own file that it passed through."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == inspect.getfile(cls)]
    place = f" at {own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else ""
    return f"{type(error).__name__}{place}: {error}"


def _listed(places: list[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]}, and {len(places) - 1} more"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
