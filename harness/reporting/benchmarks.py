"""Times that pytest-benchmark has saved as JSON, as a table and a figure of a report, which uses them nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, Field, ValidationError

from harness.core.errors import UserError
from harness.core.files import RECORD, read_file
from harness.reporting.figures.figure_style import layer_axis, logarithmic, panels, plain
from harness.reporting.figures.looks import COLOURS, MARKERS
from harness.reporting.tables.cells import EMPTY, milliseconds
from harness.reporting.tables.rendering import Table

LONGEST = 32  # of a name in a figure, in characters

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Stats(BaseModel):
    median: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    iqr: Seconds
    rounds: int


class _Benchmark(BaseModel):
    name: str
    group: str | None = None
    stats: _Stats


class _File(BaseModel):
    machine_info: dict[str, Any] = Field(default_factory=dict)
    commit_info: dict[str, Any] = Field(default_factory=dict)
    benchmarks: list[_Benchmark]


@dataclass(frozen=True)
class Saved:
    """One file of pytest-benchmark."""

    name: str
    commit: str  # its first digits, and whether the checkout differed from it; empty if unknown
    machine: str | None
    times: dict[tuple[str, str], tuple[float, float, int]]
    """(group, benchmark) -> median and interquartile range in milliseconds, number of rounds."""

    @property
    def heading(self) -> str:
        """File and commit."""
        return f"{self.name} ({self.commit})" if self.commit else self.name


def read_benchmarks(path: Path) -> Saved:
    """Read what `pytest --benchmark-json` or `--benchmark-save` wrote; a UserError names what is wrong with it."""
    way_out = "give a file of pytest --benchmark-json or --benchmark-save"
    try:
        found = _File.model_validate_json(read_file(path, RECORD))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: not of pytest-benchmark ({place}: {first['msg']}); {way_out}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {way_out}") from error
    cpu = found.machine_info.get("cpu")
    machine = cpu.get("brand_raw") if isinstance(cpu, dict) else None
    commit = str(found.commit_info.get("id") or "")[:8]
    return Saved(
        path.stem,
        commit + (" and changes" if commit and found.commit_info.get("dirty") else ""),
        None if machine is None else str(machine),
        {
            (case.group or "", case.name): (1e3 * case.stats.median, 1e3 * case.stats.iqr, case.stats.rounds)
            for case in found.benchmarks
        },
    )


def benchmark_table(files: Sequence[Saved]) -> Table:
    """Return a table of a row per benchmark and a column per file."""
    cases = _cases(files)
    rows = [(case[0] or EMPTY, case[1], *(_cell(file.times.get(case)) for file in files)) for case in cases]
    rounds = [time[2] for file in files for time in file.times.values()]
    machines = dict.fromkeys(file.machine or "a processor that is not named" for file in files)
    caption = (
        "Timed by pytest-benchmark: milliseconds, median (interquartile range)"
        + (f" of {min(rounds)} to {max(rounds)} rounds. " if rounds else ". ")
        + f"{', '.join(machines)}."
    )
    remarks = [f"{file.name}: {file.machine}" for file in files] if len(machines) > 1 else []
    remarks += ["times of different machines stand side by side, and say nothing about each other"] * bool(remarks)
    header = ("group", "benchmark", *(file.heading for file in files))
    return Table("benchmarks", caption, header, tuple(rows), tuple(remarks))


def benchmark_figure(files: Sequence[Saved]) -> Figure | None:
    """Return a panel per group, a line per benchmark, a colour per file: median and half the interquartile range."""
    cases = _cases(files)
    groups = list(dict.fromkeys(group for group, _ in cases))
    if not groups:
        return None
    names_of = {group: [name for own, name in cases if own == group] for group in groups}
    figure, grid = panels(len(groups), 3.8, 0.3 * max(map(len, names_of.values())) + 1.1, columns=3)
    for axes, (group, names) in zip(grid, names_of.items(), strict=True):
        for number, saved in enumerate(files):
            known = [
                (place, saved.times[group, name]) for place, name in enumerate(names) if (group, name) in saved.times
            ]
            axes.errorbar(
                [time[0] for _, time in known],
                [place + 0.2 * (number - (len(files) - 1) / 2) / max(1, len(files) - 1) for place, _ in known],
                xerr=[min(time[1] / 2, 0.9 * time[0]) for _, time in known],
                linestyle="none",
                marker=MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                capsize=2,
                label=plain(saved.heading),
            )
        layer_axis(axes, distinct(names))
        axes.set_title(plain(group or "no group"))
        axes.set_xlabel("ms, median ± half the interquartile range")
        medians = [saved.times[key][0] for saved in files for key in saved.times if key[0] == group]
        if max(medians) >= 10 * min(medians):
            axes.set_xscale("log")
            logarithmic(axes.xaxis)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(4))
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all of them begin or end with, cut to the room in a panel."""
    start = end = 0
    if len(names) > 1:
        turned = [name[::-1] for name in names]
        ahead, behind = (os.path.commonprefix(texts) for texts in (list(names), turned))  # noqa: RUF071, of characters
        start = len(re.sub(r"\w*$", "", ahead))
        end = len(re.sub(r"\w*$", "", behind))
    short = [name[start : len(name) - end] if start + end < len(name) else name for name in names]
    return [name if len(name) <= LONGEST else f"…{name[-LONGEST:]}" for name in short]


def _cell(time: tuple[float, float, int] | None) -> str:
    return EMPTY if time is None else f"{milliseconds(time[0])} ({milliseconds(time[1])})"


def _cases(files: Sequence[Saved]) -> list[tuple[str, str]]:
    """Return every (group, benchmark), those of a group together, in order of first appearance."""
    found = list(dict.fromkeys(case for file in files for case in file.times))
    groups = [group for group, _ in found]
    return sorted(found, key=lambda case: groups.index(case[0]))
