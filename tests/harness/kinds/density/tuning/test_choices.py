"""Tuned suites in reports: what was chosen, among how many candidates, and no order of what was not tuned."""

import re

import pytest
from toys import ROWS, tables_of

from harness.core.records import blank_record
from harness.kinds.density.figures import pareto, tuning
from harness.kinds.density.models import fields
from harness.kinds.density.tables.equal_terms import equal_terms_table
from harness.kinds.density.trial import DensityTrial, Tuning
from harness.reporting.frame import Results, csv_bytes
from harness.reporting.page.page_facts import trial_rows
from harness.reporting.report import write_report
from harness.reporting.statistics.expected_best import expected_best
from harness.reporting.tables.rendering import latex, markdown

RATES = (0.01, 0.001, 0.03, 0.1)


def candidates(number=4, **options):
    """Return the tuning of a layer: learning rates, and options as tuples of values."""
    paths = {"training.learning_rate": RATES} | {f"layer.options.{name}": values for name, values in options.items()}
    points = ({path: values[point] for path, values in paths.items()} for point in range(number))
    return Tuning(seed=100, steps=10, candidates=tuple(tuple(sorted(point.items())) for point in points))


@pytest.fixture
def retuned(replanned):
    """Return a function that gives a run the tuning `tuning_of(layer, data set)`, and records without a choice."""

    def retune(run, tuning_of):
        def change(trial):
            return {"tuning": tuning_of(trial.layer.row, trial.data.label)} if trial.kind == "density" else {}

        plan, records = replanned(run, change)
        for record in records:
            record.rows = [dict(row) for row in record.rows]
            for name in ("candidate", "candidates", "chosen"):
                record.rows[0].pop(name, None)
        return plan, records

    return retune


def with_candidates(run, outcome_of):
    """Return a run with its candidates and their records, from `outcome_of(layer, data set, number)`.

    An outcome is the validation value, the status of a failure, "audit failed", or None of one that has not run.
    """
    plan, records = run
    tuned = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    found = list(dict.fromkeys(candidate for trial in tuned for candidate in trial.candidates))
    made = []
    for candidate in found:
        outcome = outcome_of(candidate.layer.row, candidate.data.label, candidate.candidate)
        if outcome is None:
            continue
        failed = isinstance(outcome, str) and outcome != "audit failed"
        made.append(blank_record(candidate, outcome if failed else "ok", "why" if failed else None))
        made[-1].seconds = 4.0
        if not failed:
            verdict = "failed" if outcome == "audit failed" else "passed"
            value = 1.0 if outcome == "audit failed" else outcome
            made[-1].audit = {"verdict": verdict}
            made[-1].rows = [{"validation": value, "audit": verdict, "unit": "bits_per_dim", "learning_rate": 0.5}]
    return plan.model_copy(update={"trials": (*found, *plan.trials)}), [*made, *records]


def mixed(row, column):
    """Return the tuning of a suite: the last layer is exempt, the second has options, waveforms has 2 candidates."""
    if row == ROWS[2]:
        return None
    if column == "waveforms":
        return candidates(2)
    options = {"initialisation": ("identity", "rotation") * 2, "depth": (2, 2, 3, 4)}
    return candidates(**options) if row == ROWS[1] else candidates()


OUTCOMES = {ROWS[0]: (3.0, 2.0, "diverged", "audit failed"), ROWS[1]: (2.5, 2.6, 2.7, 2.2)}


@pytest.fixture
def searched(density_run, retuned):
    return with_candidates(retuned(density_run, mixed), lambda row, column, number: OUTCOMES[row][number])


# What was chosen


def test_the_table_of_choices_has_settings_edges_and_failures(searched, density_run, retuned, check_text):
    """The choice in the records of the final trials counts; without a valid candidate nothing was chosen."""
    plan, records = searched
    tables = [tables_of(searched)[1]]
    assert r"0.001{*} (1 of 4 audit failed, 1 of 4 diverged)" in latex(tables[0])
    for record in records:
        if record.trial["kind"] == "density" and record.trial["layer"]["row"] == ROWS[0]:
            changes = '{"training.learning_rate": 0.01, "training.warmup": 16, "training.clip_norm": null}'
            record.rows[0]["chosen"] = changes
    outcomes = {ROWS[0]: ["diverged"] * 4, ROWS[1]: [2.5, None, None, None]}
    without = with_candidates(retuned(density_run, mixed), lambda row, column, number: outcomes[row][number])
    tables += [tables_of(run)[1] for run in ((plan, records), without)]
    check_text("choices", *map(markdown, tables))


# What is ranked

ORDER = re.compile(r"\*\*|lowest mean|\bbest\b|Bold|\bfront\b|Difference", re.IGNORECASE)


def test_untuned_results_have_no_order_anywhere(many_seeds, write_run, no_figures, retuned):
    plan, records = retuned(many_seeds(8), lambda row, column: None)
    results = Results.of(plan, records)
    text = write_report(write_run(plan, records)).report.plain()
    assert "Nothing was tuned: every layer has the settings of the suite, so no order is given." in text
    assert ORDER.search(text) is None and "§" not in text
    assert not any("choices" in table.name for table in tables_of((plan, records)))
    for terms in ("steps", "width", "parameters"):
        table = markdown(equal_terms_table(results, terms))
        assert "Nothing was tuned" in table and ORDER.search(table) is None and "†" not in table
    figure = pareto.figures(results)["pareto"]
    assert not any(line.get_linestyle() == "--" for axes in figure.axes for line in axes.lines)
    assert ORDER.search(figure.get_supxlabel()) is None
    assert "Nothing was tuned" in figure.get_supxlabel() and "hollow" not in figure.get_supxlabel()


def test_an_exempt_layer_is_marked_and_in_no_ranking(many_seeds, retuned):
    run = retuned(many_seeds(8), lambda row, column: None if row == ROWS[0] else candidates())
    likelihood = tables_of(run)[0]
    assert likelihood.bold == {(1, 1)}, "although the exempt layer has the lowest mean"
    assert r"] \S{}" in latex(likelihood)
    wide = equal_terms_table(Results.of(*run), "width")
    assert "] §, " in wide.rows[0][1] and "§ not tuned, so in no ranking" in wide.notes
    figure = pareto.figures(Results.of(*run))["pareto"]
    points = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "_", "|", "")]
    assert [line.get_markerfacecolor() == "white" for line in points] == [True, False, False]


def test_columns_of_the_same_data_that_differ_in_tuning_are_separate_fields(many_seeds, replanned):
    def change(trial):
        tuned = candidates() if (trial.layer.row, trial.data.label) == (ROWS[0], "digits") else None
        return {"data.name": "digits", "tuning": tuned}

    made = fields(Results.of(*replanned(many_seeds(1), change)))
    assert [field.name for field in made] == ["digits", "waveforms"]
    assert all([model.row for model in field.models] == list(ROWS) for field in made)


# The candidates themselves


def test_the_figure_of_tuning_has_the_mean_of_repetitions_with_candidates_of_their_own(density_run, retuned, replanned):
    def repeat(trial):
        if getattr(trial, "tuning", None) is None:
            return {}
        return {"repetition": trial.seed, "tuning.repetition": trial.seed, "data.split": trial.seed}

    run = replanned(retuned(density_run, mixed), repeat)
    run = with_candidates(run, lambda row, column, number: OUTCOMES[row][number])
    for record in run[1]:
        if record.trial["kind"] == "tuning" and record.rows:
            record.rows[0]["validation"] += record.trial["repetition"]
    figure = tuning.figures(Results.of(*run))["tuning"]
    values = [(3.0, 2.0, 3.0, 3.0), OUTCOMES[ROWS[1]]]
    for line, of_layer in zip(figure.axes[0].lines, values, strict=True):
        expected = [expected_best([value + number for value in of_layer]).mean for number in range(3)]
        assert list(line.get_ydata()) == pytest.approx(list(sum(expected) / 3))
    assert "means over repetitions" in " ".join(text.get_text() for text in figure.texts)


def test_a_failed_candidate_is_a_row_of_its_own_and_the_highest_value_of_the_figure(searched):
    results = Results.of(*searched)
    assert results.status_line == "32 trials: 30 ok, 1 audit failed in tuning, 1 diverged in tuning"
    rows = [row for row in trial_rows(results) if row.cells[0] == "tuning" and row.cells[2] == ROWS[0]]
    assert [row.cells[3:5] for row in rows] == [("candidate 2", "diverged"), ("candidate 3", "audit failed")]
    assert all(row.good for row in rows)
    header, first, *_ = csv_bytes(results.table).decode().splitlines()
    names = header.split(",")
    found = dict(zip(names, first.split(","), strict=False))
    assert (found["kind"], found["candidate"], found["learning_rate"]) == ("tuning", "0", "0.5")
    assert {"chosen", "candidates", "options", "validation"} <= set(names)
    figure = tuning.figures(Results.of(*searched))["tuning"]
    assert len(figure.axes) == 2, "a panel per data set"
    lines = figure.axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[1, 2, 3, 4]] * 2
    assert list(lines[0].get_ydata()) == list(expected_best([3.0, 2.0, 3.0, 3.0]).mean)
    assert list(lines[1].get_ydata()) == list(expected_best(OUTCOMES[ROWS[1]]).mean)
    assert "a failed candidate counts as the highest value of its layer" in figure.get_supxlabel()
    assert tuning.figures(Results.of(searched[0], [])) == {}
