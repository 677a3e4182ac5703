"""The report of a density suite: likelihoods, their differences, leads and costs, and the answer above them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar

import pandas as pd

from harness.kinds.density.across import across, across_findings, across_frame, across_table
from harness.kinds.density.captions import CORRECTED, HOLM, pair_words, sample_words, sources_text
from harness.kinds.density.compare import measure
from harness.kinds.density.comparisons import FILE, comparisons, verdict_fault
from harness.kinds.density.figures.critical_difference import HEADING, diagram
from harness.kinds.density.likelihoods import (
    IMPROVING,
    UNITS,
    Ranking,
    data_warning,
    density,
    members_of,
    of_column,
    oracles,
    ranking,
    units,
)
from harness.kinds.density.tables.choices import at_edges, choices_table
from harness.kinds.density.tables.cost import cost_table
from harness.kinds.density.tables.differences import differences_table, leads_table
from harness.kinds.density.tables.equal_terms import equal_terms_table
from harness.kinds.density.tables.events import events_table, single_events
from harness.kinds.density.tables.fidelity import fidelity_table
from harness.kinds.density.tables.publication import likelihoods_table, published_table
from harness.kinds.density.tables.table_rows import rows_table
from harness.kinds.density.tuning.searches import searches, setting_name, tuning_text
from harness.planning.plan import Plan
from harness.reporting.compare.measure import Measure
from harness.reporting.figures.figure_style import render, style
from harness.reporting.figures.figures import ReportFigure
from harness.reporting.frame import MISSING, Results, csv_bytes
from harness.reporting.page.answer import Answer, Finding, first_of, listed
from harness.reporting.report import Overview, Report
from harness.reporting.statistics.statistics import (
    ADJUSTED,
    LEAST_FOR_STUDENT,
    LEAST_SEEDS,
    POWER,
    interval_kind,
    sample_text,
)
from harness.reporting.tables.rendering import Table


class DensityReport(Report, kind="density"):
    """Likelihoods, their differences, leads and costs, and the leaders of each data set."""

    further_data: ClassVar[Mapping[str, str]] = {
        FILE: "a line for every two ranked layers: difference, interval, tests, smallest detectable one"
    }
    measure: ClassVar[Measure] = measure

    @cached_property
    def rankings(self) -> dict[str, Ranking]:
        """The competition of each data set and average."""
        plan = self.results.plan
        return {label: ranking(self.results, label) for label in (*plan.columns, *plan.means)}

    @cached_property
    def tables(self) -> list[Table]:
        """Likelihoods, their order across data sets, test events, differences, leads and costs.

        Published numbers are columns of the first table under the published protocol, otherwise a separate table.
        """
        results, plan = self.results, self.results.plan
        quoted = plan.published if plan.published is not None and plan.published.measure in UNITS else None
        beside = quoted if plan.profile == "paper" else None
        compared = across((results,))
        made = [
            likelihoods_table(results, self.rankings, beside),
            None if compared is None else across_table(compared, f"{plan.suite}-across"),
            choices_table(results),
            rows_table(results),
            events_table(results),
            differences_table(results, self.rankings),
            leads_table(results),
            fidelity_table(results),
            cost_table(results),
            published_table(plan, quoted) if quoted is not None and beside is None else None,
        ]
        return [table for table in made if table is not None]

    @cached_property
    def answer(self) -> Answer | None:
        """A finding per data set and average; None before any trial has a likelihood."""
        results, frame = self.results, density(self.results)
        if frame["value"].isna().all():
            return None
        ranked = [competition for competition in self.rankings.values() if competition.leaders]
        warning = data_warning(frame)
        remarks = (
            ("Data", () if warning is None else (f"{warning}.",)),
            ("Intervals", tuple(_intervals(ranked))),
            ("Equal means", tuple(_equal_means(self.rankings))),
            ("Power", tuple(_power(results, self.rankings))),
            ("Failures", tuple(_failures(results, frame, self.rankings))),
            ("Tuned", tuple(_tuned(results))),
            ("Not said", tuple(_not_said(results, frame, ranked))),
        )
        findings = [_finding(results, label, competition) for label, competition in self.rankings.items()]
        compared = across((results,))
        findings += [] if compared is None else across_findings(compared)
        return Answer(tuple(findings), tuple(remark for remark in remarks if remark[1]))

    @classmethod
    def overview(cls, runs: tuple[Results, ...]) -> Overview | None:
        """Return the layers over the data sets of all runs; None with fewer than three that rank the same layers."""
        compared = across(runs)
        if compared is None:
            return None
        with style():
            figure = ReportFigure("critical-difference", HEADING, render(diagram(compared)))
        answer = Answer(tuple(across_findings(compared)))
        return Overview(answer, [across_table(compared, "across")], [figure], across_frame(compared))

    def comparisons(self, margin: float | None = None) -> pd.DataFrame:
        """Return the differences of every two ranked layers."""
        return comparisons(self.results, margin)

    @classmethod
    def verdict_fault(cls, plan: Plan) -> str | None:
        """See `Report.verdict_fault`."""
        return verdict_fault(plan)

    def data_files(self) -> dict[str, bytes]:
        """Return comparisons.csv, if two ranked layers have a seed or repetition in common."""
        frame = self.comparisons()
        return {} if frame.empty else {FILE: csv_bytes(frame)}

    def table_at(self, terms: str) -> Table:
        """Return the likelihoods at equal steps, seconds, parameters or width."""
        return equal_terms_table(self.results, terms)


def _finding(results: Results, label: str, competition: Ranking) -> Finding:
    leaders = competition.leaders
    if not leaders:
        return Finding(label, "not ranked", "open", f"{_why_unranked(results, label, competition)}.")
    unit = UNITS[units(results)[members_of(results.plan, label)[0]]]
    best = competition.order[0]
    first = f"{best} {competition.means[best]:.3f} {unit}, lowest in {competition.firsts[best]} of {competition.sample}"
    # Neither list continues the other: a layer with a wide interval may have a higher mean than one shown to be behind.
    trailing = [_behind(competition, row) for row in competition.trailing]
    ahead = f"; shown to be behind: {first_of(trailing)}" if trailing else ""
    if len(leaders) > 1:
        close = listed([_behind(competition, leaders[1]), *leaders[2:]])
        behind = "none is" if not trailing else "1 is" if len(trailing) == 1 else f"{len(trailing)} are"
        verdict = f"{len(leaders)} of {len(competition.means)} are left, {behind} shown to be behind"
        return Finding(label, verdict, "open", f"{first}; not shown to be behind: {close}{ahead}.")
    if competition.tested:
        return Finding(label, "significant lead", "good", f"{first}{ahead}.")
    return Finding(label, "lead, no test", "part", f"{first}{ahead}.")


def _behind(competition: Ranking, row: str) -> str:
    difference = competition.behind(row)
    return row if difference is None else f"{row} {difference.short()}"


def _why_unranked(results: Results, label: str, competition: Ranking) -> str:
    tuned = [searches(results)[member] for member in members_of(results.plan, label)]
    if not all(tuned):
        return "Nothing was tuned, so no order is given"
    rows = competition.rows
    if len(rows) < 2:
        return f"Fewer than two layers have likelihoods that may be compared ({listed(list(rows)) or 'none'})"
    seeds = min(map(len, rows.values()))
    repeated = competition.share is not None
    return f"{sample_text(seeds, repeated)}: no lead has an interval below {sample_text(LEAST_FOR_STUDENT, repeated)}"


def _intervals(rankings: list[Ranking]) -> Iterator[str]:
    """Yield what the brackets and p-values are."""
    counts = sorted({len(seeds) for competition in rankings for seeds in competition.rows.values()})
    differences = [difference for competition in rankings for difference in competition.differences.values()]
    if counts:
        kind, number, words = interval_kind(differences), " or ".join(map(str, counts)), sample_words(differences)
        yield f"Distances to the lowest mean with {kind} 95 % interval, over {number} paired {words}."
        yield from [HOLM] * (ADJUSTED in kind)
    if any(competition.tested for competition in rankings):
        yield "p: paired t test, after Holm's correction for all pairs of layers."
    if any(competition.share is not None for competition in rankings):
        yield CORRECTED


def _equal_means(rankings: Mapping[str, Ranking]) -> Iterator[str]:
    """Yield which rows are shown to be behind although another row of no lower mean, as printed, is not."""
    parts = []
    for label, competition in rankings.items():
        means = {row: round(mean, 3) for row, mean in competition.means.items()}
        for row in competition.trailing:
            open_rows = [other for other in competition.leaders if means[other] >= means[row]]
            if open_rows:
                parts.append(f"{row} on {label}, and not {listed(open_rows)}")
    if parts:
        yield (
            f"Shown to be behind although the mean is not higher: {'; '.join(parts)}. The test is of paired "
            "differences, and those of the first vary less."
        )


def _power(results: Results, rankings: Mapping[str, Ranking]) -> Iterator[str]:
    """Yield the range of the smallest differences that the tests of each data set find, or would with more pairs."""
    parts: dict[str, list[str]] = {}
    for label, competition in rankings.items():
        number = max(len(competition.common), LEAST_SEEDS)
        found = [each.detectable_with(number) for each in competition.differences.values()]
        sizes = [size for size in found if size is not None]
        if sizes:
            unit = UNITS[units(results)[members_of(results.plan, label)[0]]]
            ends = dict.fromkeys(f"{size:.3f}" for size in (min(sizes), max(sizes)))
            few = (
                f" of {sample_text(number, competition.share is not None)} that vary as these {len(competition.common)}"
            )
            parts.setdefault(few * (not competition.tested), []).append(f"{label} {' to '.join(ends)} {unit}")
    for few, texts in parts.items():
        yield (
            f"Smallest difference that a test{few} {'would find' if few else 'finds'} with {POWER:.0%} probability, by "
            f"pair of layers: {'; '.join(texts)} (two-sided, at the first step of Holm's correction)."
        ).replace("%", " %")


def _failures(results: Results, frame: pd.DataFrame, rankings: Mapping[str, Ranking]) -> Iterator[str]:
    """Yield the rows that are ranked although trials of them failed, and how."""
    parts = []
    for label in results.plan.columns:
        imputed = frame[(frame["dataset"] == label) & frame["value"].isna() & frame["ranked"].notna()]
        for row in rankings[label].rows:
            if failed := int((imputed["layer"] == row).sum()):
                parts.append(f"{row} on {label} ({failed} of {len(rankings[label].rows[row])})")
    if parts:
        yield f"A failed trial is ranked with the worst likelihood of its row on the data set: {listed(parts)}."


def _tuned(results: Results) -> Iterator[str]:
    """Yield the number of candidates, and the settings among which they chose."""
    yield tuning_text(results)
    tried = [(row, search.tried) for of_rows in searches(results).values() for row, search in of_rows.items()]
    rows = {row for row, _ in tried}
    parts = []
    for path in dict.fromkeys(path for _, paths in tried for path in paths):
        owners = list(dict.fromkeys(row for row, paths in tried if path in paths))
        parts.append(setting_name(path) + ("" if len(owners) == len(rows) else f" of {listed(owners)}"))
    if parts:
        yield f"Settings: {'; '.join(parts)}."


def _not_said(results: Results, frame: pd.DataFrame, rankings: list[Ranking]) -> Iterator[str]:
    """Yield what the findings leave open."""
    plan = results.plan
    if rankings:
        yield f"Other data, sizes and budgets than those of profile {plan.profile} may order the layers otherwise."
        yield from filter(None, (sources_text(results),))
    if not all(competition.tested for competition in rankings):
        words = pair_words(competition.share is not None for competition in rankings if not competition.tested)
        yield f"There is no test below {LEAST_SEEDS} {words}."
    yield from (f"One event decides on {text}." for text in single_events(results))
    ranked = frame[frame["tuned"] & frame["value"].notna()]
    if improving := int(ranked["improving"].sum()):
        yield (
            f"{improving} of {len(ranked)} tuned trainings still improved when they reached their bound ({IMPROVING}): "
            "longer ones may change the order."
        )
    edges, chosen = at_edges(results)
    if edges:
        yield f"{edges} of {chosen} choices lie at an edge of what was tried: a wider search may change the order."
    yield from _unranked(results, frame)
    if plan.published is not None and plan.profile != "paper":
        yield "Nothing here compares with a published number: the protocol is another."


def _unranked(results: Results, frame: pd.DataFrame) -> Iterator[str]:
    """Yield the rows that are in no ranking although others on their data set are, with the reasons."""
    columns: dict[tuple[str, str], list[str]] = {}
    told = oracles(results.plan)
    for column in results.plan.columns:
        ranked = ranking(results, column).rows
        for row, trials in of_column(frame, results.plan, column).items():
            if not ranked or row in ranked or trials.empty:
                continue
            failures = trials.loc[trials["value"].isna(), "failure"].replace(MISSING, "not run yet")
            if row in told:
                reason = "an oracle, which bounds the others"
            elif len(failures):
                reason = "/".join(sorted(set(failures)))
            else:
                reason = "no likelihood to compare (†)" if trials["doubt"].notna().any() else "not tuned"
            columns.setdefault((row, reason), []).append(column)
    rows: dict[str, list[str]] = {}
    for (row, reason), names in columns.items():
        where = "" if row in told else f" on {listed(names)}"
        rows.setdefault(f"{where} ({reason})", []).append(row)
    if rows:
        yield f"Not ranked: {'; '.join(listed(names) + where for where, names in rows.items())}."
