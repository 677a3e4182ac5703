"""Distances of samples from real images, below a density table: FID, KID, precision and recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from harness.core.settings import SampleSettings
from harness.kinds.density.captions import means_text, sentences
from harness.kinds.density.likelihoods import repeated, share_of
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import MISSING, Results, Row, groups_of, rows_of
from harness.reporting.statistics.statistics import estimate, sample_text
from harness.reporting.tables.cells import EMPTY, Notes, grid
from harness.reporting.tables.rendering import Table

FORMATS = {"fid": ".1f", "kid": ".4f", "precision": ".3f", "recall": ".3f"}
HEADINGS = {"fid": "FID ↓", "kid": "KID ↓", "precision": "precision ↑", "recall": "recall ↑"}

Asked = Mapping[tuple[str, SampleSettings], Sequence[str]]
"""Data set and settings of the samples -> ids of the trials."""


def fidelity_table(results: Results) -> Table | None:
    """Return a row per model, and four measures for each data set and settings of samples; None without a number.

    Numbers of other extractors or counts of images do not compare: they are in separate columns.
    """
    if not _measured(results.frame).any():
        return None
    plan, asked, notes = results.plan, _asked(results), Notes()
    header, groups, columns = ["layer"], [("", 1)], []
    for label in plan.columns:
        variants = [settings for column, settings in asked if column == label]
        for settings in variants:
            lines = results.frame[results.frame["id"].isin(asked[label, settings])]
            heading = label if len(variants) == 1 else f"{label} ({settings.count:,} in {settings.extractor})"
            groups.append((heading, len(FORMATS)))
            for measure, name in HEADINGS.items():
                header.append(f"{heading}, {name}")
                cells = {
                    row: _cell(lines[lines["layer"] == row], measure, f"{row} on {heading}", notes) for row in plan.rows
                }
                columns.append(cells)
    rows = grid(plan.rows, columns)
    remarks = (*notes.numbered(), *_compared(asked, results.frame))
    caption = _caption(results, asked)
    return Table(f"{plan.suite}-fidelity", caption, tuple(header), rows, remarks, tuple(groups), detail=True)


def missing_fidelity(results: Results) -> list[str]:
    """Return why the samples of no trial were compared with real images; empty where those of one were."""
    frame = results.frame
    if not _asked(results) or _measured(frame).any():
        return []
    causes = (notes.get("fidelity") for notes in frame.loc[frame["status"] == "ok", "notes"])
    return list(dict.fromkeys(filter(None, causes)))


def _asked(results: Results) -> dict[tuple[str, SampleSettings], list[str]]:
    asked: dict[tuple[str, SampleSettings], list[str]] = {}
    for trial in results.plan.trials:
        if isinstance(trial, DensityTrial) and trial.training.samples is not None:
            asked.setdefault((trial.data.label, trial.training.samples), []).append(trial.id)
    return asked


def _measured(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame[list(FORMATS)].notna().any(axis=1)


def _caption(results: Results, asked: Asked) -> str:
    measured = results.of_kind("density").dropna(subset="fid")
    over = means_text((repeated(trials), len(trials)) for _, trials in groups_of(measured, ["dataset", "layer"]))
    counts = ", ".join(dict.fromkeys(f"{label} {settings.count:,}" for label, settings in asked))
    extractors = sorted({settings.extractor for _, settings in asked})
    return sentences("fidelity", extractors, over, results.plan.profile, counts)


def _compared(asked: Asked, frame: pd.DataFrame) -> list[str]:
    """Return the images that were compared for each data set, from the notes of its records."""
    compared = frame[frame["fid"].notna()]
    texts = [
        f"{label}: {notes.get('fidelity')}"
        for (label, _), ids in asked.items()
        for notes in compared.loc[compared["id"].isin(ids), "notes"]
    ]
    return list(dict.fromkeys(texts))


def _cell(planned: pd.DataFrame, measure: str, where: str, notes: Notes) -> str:
    measured = (planned["status"] == "ok") & planned[measure].notna()
    good, failed = planned[measured], planned[~measured]
    text = _text(good, measure)
    if len(failed) and good.empty:
        text = "/".join(sorted(set(failed["status"].replace("ok", EMPTY))))
    elif len(failed):
        text += f" ({len(good)} of {sample_text(len(planned), repeated(planned))})"
    if measure == next(iter(FORMATS)):  # the first of a row's cells has the remarks of all
        remarks = [_remark(line, where, line.Index in good.index) for line in rows_of(planned)]
        text += "".join(dict.fromkeys(notes.mark(remark) for remark in remarks if remark is not None))
    return text


def _remark(line: Row, where: str, good: bool) -> str | None:
    """Return why a trial has no measures, or the remark on its samples."""
    if line.status not in ("ok", MISSING):
        return f"{where}: {line.failure}: {line.cause}"
    if not good:
        return line.notes.get("fidelity")
    pair = f"seed {line.seed}" if pd.isna(line.repetition) else f"repetition {line.repetition}"
    return f"{where}, {pair}: {line.notes['fidelity_lost']}" if "fidelity_lost" in line.notes else None


def _text(good: pd.DataFrame, measure: str) -> str:
    if good.empty:
        return EMPTY
    form = FORMATS[measure]
    mean = estimate(list(good[measure]), share=share_of(good))
    text = format(mean.mean, form)
    if mean.low is not None:
        text += f" [{mean.low:{form}}, {mean.high:{form}}]"
    spread = good["kid_sd"].dropna()
    return f"{text} ({spread.mean():{form}})" if measure == "kid" and len(spread) else text
