"""Remarks on which layers behind times ran as compiled kernels, and which as PyTorch for want of them."""

from __future__ import annotations

import pandas as pd

from harness.core.provenance.environment import NOT_ASKED
from harness.reporting.frame import Results

FALLBACK = "¶"  # after a time of plain PyTorch whose layer may have a kernel, which was not loaded


def fallbacks(results: Results) -> dict[str, str]:
    """Return trial id -> why the compiled kernels were not loaded, of the trials in which a layer asked for them."""
    found = {}
    for name, record in results.records.items():
        reason = record.environment.get("kernels", {}).get("reason")
        if record.environment.get("backend") == "torch" and reason not in (None, NOT_ASKED):
            found[name] = reason
    return found


def kernel_remarks(results: Results, timed: pd.DataFrame) -> tuple[str, ...]:
    """Return remarks below a table of these times: the layers with kernels, and the reason of a fallback."""
    known = timed.dropna(subset=["median_ms", "backend"])
    reasons = fallbacks(results)
    remarks = []
    compiled = list(dict.fromkeys(known.loc[known["backend"] != "torch", "layer"]))
    if compiled:
        others = " the others are plain PyTorch" if (known["backend"] == "torch").any() else ""
        remarks.append(f"compiled kernels: {', '.join(compiled)}{';' * bool(others)}{others}")
    elif len(known):
        remarks.append("every layer ran as plain PyTorch")
    lacking = dict.fromkeys(reasons[name] for name in timed["id"] if name in reasons)
    return (*remarks, *(f"{FALLBACK} plain PyTorch, as there were no compiled kernels: {why}" for why in lacking))


def fallback_note(results: Results, kind: str) -> tuple[str, ...]:
    """Return a remark on seconds of trials of a kind that ran without the compiled kernels; none where all had them."""
    reasons = fallbacks(results)
    own = results.frame.loc[results.frame["kind"] == kind, "id"]
    lacking = dict.fromkeys(reasons[name] for name in own if name in reasons)
    return tuple(f"seconds of plain PyTorch, as there were no compiled kernels: {why}" for why in lacking)
