"""The suite of leads by capacity of the couplings, and its figure."""

import random
import statistics
from itertools import combinations

import pytest
from scipy import stats
from toys import run_quietly

from harness.cli.parser import main
from harness.kinds.density.figures.capacity import figures
from harness.kinds.density.models import fields
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results

CONTROL = "conv1x1-twice"
CAPACITIES = {
    "digits, coupling width": ("digits width 4", "digits", "digits attention"),
    "digits, steps per level": ("digits", "digits steps 2", "digits attention"),
}


def value_of(column, row, seed):
    """Return a likelihood that is unrelated to any other."""
    return random.Random(f"{column}{row}{seed}").uniform(2, 3)


@pytest.fixture
def run(recorded):
    """Return the smoke profile with three seeds, and records of made-up likelihoods."""
    plan, _ = settle(load_suite("capacity"), "smoke", "cpu", seeds=3).plan()
    return plan, records_of(plan.trials, recorded)


def records_of(trials, recorded):
    trials = [trial for trial in trials if isinstance(trial, DensityTrial)]
    return [recorded(trial, value_of(trial.data.label, trial.layer.row, trial.seed)) for trial in trials]


def drawn_leads(axes):
    """Return layer number -> its (capacity number, mean, low, high)."""
    leads = {}
    for container in axes.containers:
        line, _, (bars,) = container
        heights = [segment[:, 1] for segment in bars.get_segments()]
        points = zip(line.get_xdata(), line.get_ydata(), heights, strict=True)
        drawn = [(round(x), mean, *height) for x, mean, height in points]
        leads.setdefault(line.get_color(), []).extend(drawn)
    return list(leads.values())


def holm_step(plan, column, pair):
    """Return by how many comparisons Holm's correction multiplies p of a pair of rows, or of the first that fails."""
    p = {}
    for first, second in combinations(plan.rows, 2):
        values = [value_of(column, first, seed) - value_of(column, second, seed) for seed in plan.seeds]
        p[frozenset((first, second))] = stats.ttest_1samp(values, 0.0).pvalue
    for step, tested in zip(range(len(p), 0, -1), sorted(p, key=p.get), strict=True):
        if tested == pair or step * p[tested] >= 0.05:
            return step


def test_the_figure_shows_paired_differences_from_the_control(run):
    plan, records = run
    figure = figures(Results.of(plan, records))["capacity"]
    layers = [row for row in plan.rows if row != CONTROL]
    assert [f"{axes.get_title()}, {axes.get_xlabel()}" for axes in figure.axes] == list(CAPACITIES)
    ticks = [[text.get_text() for text in axes.get_xticklabels()] for axes in figure.axes]
    assert ticks == [["4", "8", "attention\n8"], ["1", "2", "attention\n1"]]
    for axes, columns in zip(figure.axes, CAPACITIES.values(), strict=True):
        for row, points in zip(layers, drawn_leads(axes), strict=True):
            assert [point[0] for point in points] == [0, 1, 2]
            for column, (_, *drawn) in zip(columns, points, strict=True):
                leads = [value_of(column, CONTROL, seed) - value_of(column, row, seed) for seed in plan.seeds]
                quantile = stats.t.ppf(1 - 0.05 / (2 * holm_step(plan, column, {CONTROL, row})), 2)
                mean, half = statistics.fmean(leads), quantile * statistics.stdev(leads) / 3**0.5
                assert drawn == pytest.approx([mean, mean - half, mean + half]), (column, row)
        assert list(axes.lines[0].get_ydata()) == [0, 0]
        joined = [container[0].get_linestyle() for container in axes.containers]
        assert joined == ["-", "None"] * len(layers), "attention is a separate point"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*layers, CONTROL]
    assert "bars: Holm-adjusted Student's 95 % interval of the difference, over paired seeds" in figure.get_supxlabel()


def test_a_layer_that_does_not_compete_has_no_lead(run):
    plan, records = run
    for record in records:
        if record.trial["layer"]["row"] == "periodic" and record.trial["data"]["label"] == "digits attention":
            record.rows[0]["audit"] = "failed"
    points = [drawn_leads(axes) for axes in figures(Results.of(plan, records))["capacity"].axes]
    assert [[len(leads) for leads in panel] for panel in points] == [[3, 2, 3, 3, 3]] * 2
    names = [field.name for field in fields(Results.of(*run))]
    assert names == ["digits and digits width 4", "digits steps 2", "digits attention"]


def test_without_several_capacities_or_a_control_there_is_no_figure(recorded):
    for only in ("dataset=digits,digits attention", "layer=emerging,periodic"):
        plan, trials = settle(load_suite("capacity"), "smoke", "cpu", only=[only], seeds=3).plan()
        assert figures(Results.of(plan.limited(trials), records_of(trials, recorded))) == {}
    plan, _ = settle(load_suite("reach"), "smoke", "cpu", seeds=3).plan()
    results = Results.of(plan, records_of(plan.trials, recorded))
    (axes,) = figures(results)["capacity"].axes
    assert (axes.get_title(), axes.get_xlabel()) == ("waveforms", "positions that a coupling sees")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "9", "all"]
    assert [len(leads) for leads in drawn_leads(axes)] == [3] * 3  # of three layers
    assert [field.name for field in fields(results)] == list(plan.columns)


def test_a_flow_with_attention_trains_and_passes_its_audit(run, tmp_path):
    trials = [trial for trial in run[0].trials if isinstance(trial, DensityTrial)]
    trial = next(trial for trial in trials if trial.column == "digits attention")
    record = run_quietly(trial.settled({}), tmp_path)
    assert (record.status, record.audit["verdict"]) == ("ok", "passed"), record.reason


@pytest.mark.system
def test_the_smoke_profile_runs(tmp_path):
    selected = ["--only", "dataset=digits width 4,digits,digits attention", "--only", f"layer=woodbury,{CONTROL}"]
    assert main(["run", "capacity", "--profile", "smoke", "--out", str(tmp_path), *selected]) == 0
    assert (tmp_path / "capacity" / "figures" / "capacity.svg").is_file()
    assert "couplings of attention" in (tmp_path / "capacity" / "table.md").read_text()
