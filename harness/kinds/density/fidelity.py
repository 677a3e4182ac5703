"""How near samples come to real images, below a density table: FID, KID, precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.settings import SampleSettings
from harness.kinds.density.trial import DensityTrial
from harness.reporting.results import MISSING
from harness.reporting.statistics.statistics import estimate
from harness.reporting.tables.cells import EMPTY, Line, Notes, failed_reason, failed_status
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan

FORMATS = {"fid": ".1f", "kid": ".4f", "precision": ".3f", "recall": ".3f"}
HEADINGS = {"fid": "FID ↓", "kid": "KID ↓", "precision": "precision ↑", "recall": "recall ↑"}


def fidelity_table(plan: Plan, lines: Sequence[Line]) -> Table | None:
    """A row per model, and four measures for each data set and what was asked of it; None where nothing was.

    Numbers of another extractor or of another count of images are of another kind: they get columns of their own,
    which say so.
    """
    asked: dict[tuple[str, SampleSettings], list[str]] = {}
    for trial in plan.trials:
        if isinstance(trial, DensityTrial) and trial.training.samples is not None:
            asked.setdefault((trial.data.label, trial.training.samples), []).append(trial.id)
    if not asked:
        return None
    notes = Notes()
    header, groups, columns = ["layer"], [("", 1)], []
    for label in plan.columns:
        kinds = [settings for column, settings in asked if column == label]
        for settings in kinds:
            ids = set(asked[label, settings])
            mine = [line for line in lines if line["id"] in ids]
            heading = label if len(kinds) == 1 else f"{label} ({settings.count:,} in {settings.extractor})"
            groups.append((heading, len(FORMATS)))
            for measure, name in HEADINGS.items():
                header.append(f"{heading}, {name}")
                columns.append({row: _cell(mine, row, heading, measure, notes) for row in plan.rows})
    rows = tuple((row, *(cells[row] for cells in columns)) for row in plan.rows)
    remarks = [*notes.numbered(), *_compared(asked, lines)]
    return Table(
        f"{plan.suite}-fidelity", _caption(plan, asked), tuple(header), rows, tuple(remarks), groups=tuple(groups)
    )


def _caption(plan: Plan, asked: dict[tuple[str, SampleSettings], list[str]]) -> str:
    extractors = sorted({settings.extractor for _, settings in asked})
    counts = ", ".join(dict.fromkeys(f"{label} {settings.count:,}" for label, settings in asked))
    features = f"features of {extractors[0]}"
    if len(extractors) > 1:
        features = f"features of {' and '.join(extractors)}, whose numbers do not compare with each other's"
    over = "mean [95 % bootstrap interval] over seeds" if len(plan.seeds) > 1 else "one seed"
    return (
        f"Generated against as many real images, {features}; {over}. Measured: profile {plan.profile}; images asked "
        f"for: {counts}. Few images bias FID upward, so only equal counts compare, and small ones with no published "
        "number. KID: in parentheses the standard deviation between subsets. Precision: the share of generated images "
        "that look real; recall: the share of real images that the model reaches."
    )


def _compared(asked: dict[tuple[str, SampleSettings], list[str]], lines: Sequence[Line]) -> list[str]:
    """Per data set what was compared with what, as the records have it."""
    found: dict[str, None] = {}
    for (label, _), ids in asked.items():
        for line in lines:
            if line["id"] in ids and line.get("fid") is not None:
                found[f"{label}: {(line.get('notes') or {}).get('fidelity')}"] = None
    return list(found)


def _cell(lines: Sequence[Line], row: str, heading: str, measure: str, notes: Notes) -> str:
    planned = [line for line in lines if line["layer"] == row]
    good = [line for line in planned if line["status"] == "ok" and line.get(measure) is not None]
    failed = [line for line in planned if line not in good]
    text = _text(good, measure)
    if failed and not good:
        text = "/".join(sorted({EMPTY if line["status"] == "ok" else line["status"] for line in failed}))
    elif failed:
        text += f" ({len(good)} of {len(planned)} seeds)"
    if measure == next(iter(FORMATS)):  # the first of a row's cells speaks for all
        remarks = [_remark(line, f"{row} on {heading}", line in good) for line in planned]
        text += "".join(dict.fromkeys(notes.mark(remark) for remark in remarks if remark is not None))
    return text


def _remark(line: Line, where: str, good: bool) -> str | None:
    """Why a trial has no measures, or what is to be said of its samples."""
    known = line.get("notes") or {}
    if line["status"] not in ("ok", MISSING):
        return f"{where}: {failed_status(line)}: {failed_reason(line)}"
    if not good:
        return known.get("fidelity")
    return f"{where}, seed {line['seed']}: {known['fidelity_lost']}" if "fidelity_lost" in known else None


def _text(good: Sequence[Line], measure: str) -> str:
    if not good:
        return EMPTY
    form = FORMATS[measure]
    found = estimate([line[measure] for line in good])
    text = format(found.mean, form)
    if found.low is not None:
        text += f" [{found.low:{form}}, {found.high:{form}}]"
    spread = [line["kid_sd"] for line in good if line.get("kid_sd") is not None]
    return f"{text} ({sum(spread) / len(spread):{form}})" if measure == "kid" and spread else text
