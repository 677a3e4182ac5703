"""Times that pytest-benchmark has saved as JSON, as a table and a figure of a report.

They are pytest-benchmark's own measurements, of whatever it was given to time, and stand by themselves: nothing else
in a report is computed from them.
"""

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
from harness.reporting.figures.figure_style import COLOURS, INK, layer_axis, logarithmic, marker, panels, plain
from harness.reporting.tables.cells import EMPTY, milliseconds
from harness.reporting.tables.rendering import Table

MOST_PANELS = 24
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
    """One file of pytest-benchmark.

    Attributes:
        name: of the file, without its ending.
        commit: the first digits, and whether the checkout differed from it; empty where nobody knows.
        machine: the processor; None where the file does not say.
        times: (group, benchmark) -> (median, interquartile range) in milliseconds, and the number of rounds.
    """

    name: str
    commit: str
    machine: str | None
    times: dict[tuple[str, str], tuple[float, float, int]]

    @property
    def heading(self) -> str:
        """File and commit."""
        return f"{self.name} ({self.commit})" if self.commit else self.name


def read_benchmarks(path: Path) -> Saved:
    """Read what `pytest --benchmark-json` or `--benchmark-save` wrote; a UserError names what is wrong with it."""
    way_out = "give a file of pytest --benchmark-json or --benchmark-save"
    try:
        found = _File.model_validate_json(path.read_bytes())
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
            (one.group or "", one.name): (1e3 * one.stats.median, 1e3 * one.stats.iqr, one.stats.rounds)
            for one in found.benchmarks
        },
    )


def benchmark_table(files: Sequence[Saved]) -> Table:
    """A row per benchmark and a column per file."""
    cases = _cases(files)
    rows = []
    for group, name in cases:
        times = [one.times.get((group, name)) for one in files]
        rows.append(
            (
                group or EMPTY,
                name,
                *(EMPTY if t is None else f"{milliseconds(t[0])} ({milliseconds(t[1])})" for t in times),
            )
        )
    rounds = [time[2] for one in files for time in one.times.values()]
    machines = dict.fromkeys(one.machine or "a processor that is not named" for one in files)
    caption = (
        "Timed by pytest-benchmark: milliseconds, median (interquartile range)"
        + (f" of {min(rounds)} to {max(rounds)} rounds. " if rounds else ". ")
        + f"{', '.join(machines)}."
    )
    remarks = [f"{one.name}: {one.machine}" for one in files] if len(machines) > 1 else []
    remarks += ["times of different machines stand side by side, and say nothing about each other"] * bool(remarks)
    header = ("group", "benchmark", *(one.heading for one in files))
    return Table("benchmarks", caption, header, tuple(rows), tuple(remarks))


def benchmark_figure(files: Sequence[Saved]) -> Figure | None:
    """A panel per group, a line per benchmark, a colour per file: the median and half the interquartile range."""
    cases = _cases(files)
    groups = list(dict.fromkeys(group for group, _ in cases))
    if not groups:
        return None
    drawn = groups[:MOST_PANELS]
    most = max(sum(group == one for group, _ in cases) for one in drawn)
    figure, grid = panels(len(drawn), 3.8, 0.3 * most + 1.1, columns=3)
    for axes, group in zip(grid, drawn, strict=True):
        names = [name for one, name in cases if one == group]
        for number, saved in enumerate(files):
            known = [
                (place, saved.times[group, name]) for place, name in enumerate(names) if (group, name) in saved.times
            ]
            axes.errorbar(
                [time[0] for _, time in known],
                [place + 0.2 * (number - (len(files) - 1) / 2) / max(1, len(files) - 1) for place, _ in known],
                xerr=[min(time[1] / 2, 0.9 * time[0]) for _, time in known],
                linestyle="none",
                marker=marker(number),
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
    if len(groups) > len(drawn):
        text = f"the first {len(drawn)} of {len(groups)} groups; the table has them all"
        figure.supxlabel(text, fontsize=8, color=INK)
    return figure


def distinct(names: Sequence[str]) -> list[str]:
    """The names without the words that all of them begin or end with: what a panel has room for."""
    start = end = 0
    if len(names) > 1:
        turned = [name[::-1] for name in names]
        ahead, behind = (os.path.commonprefix(texts) for texts in (list(names), turned))  # noqa: RUF071, of characters
        start = len(re.sub(r"\w*$", "", ahead))
        end = len(re.sub(r"\w*$", "", behind))
    short = [name[start : len(name) - end] if start + end < len(name) else name for name in names]
    return [name if len(name) <= LONGEST else f"…{name[-LONGEST:]}" for name in short]


def _cases(files: Sequence[Saved]) -> list[tuple[str, str]]:
    """Every (group, benchmark), those of a group together, in order of first appearance."""
    found = list(dict.fromkeys(key for one in files for key in one.times))
    groups = list(dict.fromkeys(group for group, _ in found))
    return sorted(found, key=lambda key: groups.index(key[0]))
