"""`harness.verify`: examine the run of another user by training a random sample of its trials again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness.core.archive import read_records
from harness.core.arguments import Place, checked, optional, path
from harness.core.discovery import sibling
from harness.core.errors import UserError
from harness.core.records import verdict, write_record
from harness.execution.data import check_data
from harness.execution.executor import executor_class
from harness.execution.folder import claimed, make_folder, writing
from harness.interface.options import RunArguments
from harness.interface.plan import data_root
from harness.interface.runs import run_remaining
from harness.planning.plan import FILE, Plan

if TYPE_CHECKING:
    from harness.reporting.compare.comparison import Comparison

VERIFIED = Path("reports/verified")
"""Folder below which the sampled trials are written, as they were handed in and as they ran again."""


@dataclass(frozen=True)
class Verification:
    """The outcome of training a sample of the trials of a run again.

    Attributes:
        comparison: of the records that were handed in (A) with those of the new run (B).
        weights: trial id -> what its kept weights contradict in its record; empty: nothing.
    """

    comparison: Comparison
    weights: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """True if every sampled trial could be compared and none changed, and no weights contradict their record."""
        return self.comparison.counts.keys() == {"same"} and not any(self.weights.values())


@checked
def verify(
    folder: Place,
    *,
    number: Annotated[int, Field(ge=1, strict=True)] = 3,
    out: Place = VERIFIED,
    data: Annotated[Path | None, optional(path, str | Path)] = None,
) -> Verification:
    """Train a random sample of the finished trials of a run again, audit included, and compare.

    Trials that were tuned take the choice that the handed-in candidates make. Where the run has kept the weights of a
    sampled trial, which archives do not hold, these are evaluated and audited again, too. Layers and data of files are
    third-party code, which runs here.

    Args:
        folder: OUT/<suite>, or an archive.
        number: of trials, drawn anew each time; times of single layers are no results to repeat, and are not drawn.
        out: a folder that does not hold a verification yet.
        data: the folder of the data sets; by default $INVERTBENCH_DATA.

    Raises:
        UserError: no trial has ended well, data are missing or others, kept weights are not those of their trial, or
            `out` is in use.
    """
    from harness.reporting.compare.comparison import Thresholds, compare

    plan = Plan.load(folder)
    records = read_records(folder, plan.trials).records
    ended = [trial for trial in plan.trials if trial.id in records and verdict(records[trial.id]) == "ok"]
    finished = [trial for trial in ended if trial.stage and not trial.alone]
    if not finished:
        raise UserError(f"{folder}: no trial that trains or computes has ended well; give a run or an archive with one")
    drawn = {trial.id for trial in SystemRandom().sample(finished, min(number, len(finished)))}
    sample = [trial for trial in finished if trial.id in drawn]
    before = {needed.id: needed for trial in sample for needed in trial.prerequisites(records)}
    root = data_root(data)
    check_data([reference for trial in sample for reference in trial.data_sets], root, offline=False, tell=print)
    stated, again = (out / name / plan.suite for name in ("stated", "again"))
    if (again / FILE).exists():
        raise UserError(f"{again}: holds a verification already; give another --out, or remove it")
    weights = {}
    for trial in sample:
        module = sibling(type(trial), "trained")
        if module is not None and module.has_weights(trial, folder):
            weights[trial.id] = module.contradictions(trial, records[trial.id], folder, root)
    limited = plan.limited([trial for trial in plan.trials if trial.id in drawn or trial.id in before])
    for place, kept in ((stated, drawn | before.keys()), (again, before.keys())):
        with writing(make_folder(place)):
            limited.save(place)
            for name in sorted(kept & records.keys()):
                write_record(place / "records", records[name])
    options = RunArguments(out=again.parent, data=root)
    with claimed(again):
        run_remaining(limited, again, executor_class("local")(), options)
    return Verification(compare(stated, again, Thresholds(), other_code=True), weights)
