"""The plan of a run: its trials, and everything else that its report needs beside the records."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from harness.core.archive import Archive, StoredRecords, archive_of, folder_of, read_records
from harness.core.errors import UserError
from harness.core.explain import explain
from harness.core.files import RECORD, FileName, read_file, write_atomically
from harness.core.records import LONGEST_REASON, Record
from harness.core.settings import Count, Positive, Settings
from harness.core.texts import bounded, one_line
from harness.core.trial import AnyTrial, Trial
from harness.planning.suite_model import MOST_CELLS, MOST_TRIALS, Average, Label, Published

FILE = "plan.json"
MOST_STRAYS = 10  # records that a report names as left out

Device = Literal["cpu", "cuda"]
GivenDevice = Literal["auto", "cpu", "cuda"]


class Section(Settings):
    """A claim and its test, in a plan of kind claims."""

    name: FileName
    claim: str  # the sentence
    where: str  # its place in the publication
    test: str
    judge: str  # of `harness.kinds.claims.judges.JUDGES`
    head: Plan  # of its suite, without the trials: those are the trials of the whole plan with this suite's name


class Plan(Settings):
    """The trials of one run of a suite, and the rest that its report needs; rows and columns as in the suite."""

    suite: FileName
    kind: str
    title: str
    question: str
    profile: str
    device: Device
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]  # data sets, or the sweeps of a runtime suite
    averages: dict[Label, Average] = Field(default_factory=dict)  # columns that are means over other columns
    seeds: tuple[int, ...] = ()  # of a density suite, apart from data sets with repetitions
    unsupported: bool = False  # the suite accepts trials of this status
    timeout: Positive | None = None  # of each trial, in seconds
    memory: Count | None = None  # of each trial, in bytes
    published: Published | None = None  # quoted numbers
    remark: str = ""  # of the profile, below its table of likelihoods
    # The command line that makes the plan, as far as it determines the trials.
    command: str = ""
    # Seeds or repetitions outermost, so that an unfinished run compares all layers on the first ones; runtime trials
    # last. A run starts them in this order, those of a later stage once their earlier ones have run.
    trials: tuple[AnyTrial, ...]
    sections: tuple[Section, ...] = ()  # of a plan of kind claims

    @property
    def heading(self) -> str:
        """The suite, its profile and the device, as text."""
        return f"{self.suite}, profile {self.profile}, on {self.device}"

    @property
    def digest(self) -> str:
        """The first digits of the SHA-256 of the ids of all trials: equal for equal settings, seeds and data."""
        return hashlib.sha256("".join(sorted(trial.id for trial in self.trials)).encode()).hexdigest()[:12]

    @property
    def titled(self) -> tuple[str, str]:
        """The title and the question, each on one line; of a part of the suite with what the run selects."""
        title, question, words = one_line(self.title), one_line(self.question), shlex.split(self.command)
        only = ", ".join(value for option, value in pairwise(words) if option == "--only")
        if not only or "&&" in words:
            return title, question
        return f"{title} (only {only})", f"{question} This run has a part of the suite: only {only}.".strip()

    def part(self, section: Section) -> Plan:
        """Return the plan of a section, by itself."""
        trials = tuple(trial for trial in self.trials if trial.suite == section.head.suite)
        return section.head.model_copy(update={"trials": trials})

    @property
    def repetitions(self) -> tuple[int, ...]:
        """The numbers of the repetitions, in order; none where seeds alone differ."""
        return tuple(sorted({trial.repeat_index for trial in self.trials if trial.repeats == "repetition"}))

    @property
    def means(self) -> dict[str, tuple[str, ...]]:
        """The averages of which the plan has every column."""
        return {label: members for label, members in self.averages.items() if set(members) <= set(self.columns)}

    def limited(self, trials: Sequence[AnyTrial]) -> Plan:
        """Return the plan of these trials alone, without rows, columns, seeds and claims that none of them has."""
        rows = {row for trial in trials for row in trial.rows}
        columns = {trial.column for trial in trials}
        seeds = {trial.repeat_index for trial in trials if trial.repeats == "seed"}
        suites = {trial.suite for trial in trials}
        published = self.published
        if published is not None:
            values = {row: numbers for row, numbers in published.values.items() if row in rows or row not in self.rows}
            published = published.model_copy(update={"values": values})
        return self.model_copy(
            update={
                "rows": tuple(row for row in self.rows if row in rows),
                "columns": tuple(column for column in self.columns if column in columns),
                "seeds": tuple(seed for seed in self.seeds if seed in seeds),
                "published": published,
                "trials": tuple(trials),
                "sections": tuple(section for section in self.sections if section.head.suite in suites),
            }
        )

    def due(self, records: Mapping[str, Record]) -> tuple[AnyTrial, ...]:
        """Return the trials without those of an earlier stage that, by the records, no later trial needs any more."""
        if all(trial.stage for trial in self.trials):
            return self.trials
        needed = {early.id for trial in self.trials for early in trial.prerequisites(records)}
        return tuple(trial for trial in self.trials if trial.stage or trial.id in needed)

    def cell(self, trial: Trial) -> tuple[str, ...]:
        """Return the one place in the plan's tables that the trial fills; each part of a plan has tables of its own."""
        return (trial.suite if self.sections else "", *trial.cell)

    def save(self, folder: Path) -> Path:
        """Write `folder/plan.json` atomically."""
        path = folder / FILE
        write_atomically(path, self.model_dump_json(indent=1).encode() + b"\n")
        return path

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Read the plan in the folder of a run, or in an archive; raise a UserError if that is not possible."""
        archive = archive_of(folder)
        path = archive or folder / FILE
        try:
            return _parsed(read_file(path, RECORD) if archive is None else Archive.read(archive).plan)
        except FileNotFoundError as error:
            raise UserError(
                f"{folder}: no {FILE}, so no suite was run here; give the folder of a run, OUT/<suite>"
            ) from error
        except (OSError, ValueError) as error:
            fault = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{path}: not a readable plan ({fault}); run the suite again") from error


@lru_cache(maxsize=1)  # a merge reads one plan several times; to check that of 12,000 trials takes seconds
def _parsed(content: bytes) -> Plan:
    try:
        plan = Plan.model_validate_json(content)
    except ValidationError as error:
        raise ValueError(bounded(explain(error)[0].message, LONGEST_REASON)) from error
    if (fault := plan_fault(plan)) is not None:
        raise ValueError(fault)
    return plan


def plan_fault(plan: Plan) -> str | None:
    """Return why the trials of a plan do not fill its tables, as those of a suite do; None if they do."""
    planned, rows, columns = {trial.id for trial in plan.trials}, set(plan.rows), set(plan.columns)
    cells = 0 if plan.sections else len(rows) * (len(columns) + len(plan.averages))  # sections have tables of their own
    if cells > MOST_CELLS or cells * len(plan.seeds) > MOST_TRIALS:
        return f"{cells:,} cells of {len(plan.seeds):,} seeds, and at most {MOST_CELLS:,} cells, {MOST_TRIALS:,} trials"
    if not planned or len(planned) < len(plan.trials):
        return "it has no trials, or two of one id"
    for trial in plan.trials:
        if trial.column not in columns or not rows.issuperset(trial.rows):
            return f"trial {trial.id}: its layer or its data set is not in the plan"
        needed = {early.id for early in trial.prerequisites({})}
        if needed & planned and needed - planned:  # a plan may be of final trials alone
            return f"trial {trial.id}: a trial on which it depends is not in the plan"
    return None


def stray_records(plan: Plan, run: Path, stored: StoredRecords | None = None) -> list[str]:
    """Return a line for each record of another suite, and each unreadable record of no trial of the plan.

    A record of the same suite with other settings is not one of them: the command that planned it uses it again.

    Args:
        stored: all records of the run, if they have been read.
    """
    planned = {trial.id for trial in plan.trials}
    suites = {plan.suite, *(trial.suite for trial in plan.trials), *(part.head.suite for part in plan.sections)}
    stored = stored or read_records(run, plan.trials, others=True, planned=False)
    lines = [f"left out: {folder_of(run)}/{stored.damaged[name]}" for name in sorted({*stored.damaged} - planned)]
    for name in sorted({*stored.records} - planned):
        if (suite := stored.records[name].trial.get("suite")) not in suites:
            lines.append(f"left out: {run}: the record of {name}, a trial of the suite {bounded(str(suite), 100)!r}")
    more = len(lines) - MOST_STRAYS
    return [*lines[:MOST_STRAYS], *([f"left out: {more} more records"] if more > 0 else [])]
