"""Reports over repetitions: pairs, corrected intervals, who leads how often, and what the intervals cover."""

import io
import statistics

import pandas as pd
import pytest
from scipy import stats
from toys import FIRST, SECOND, THIRD

import harness
from harness.core.errors import UserError
from harness.kinds.density.captions import sources, sources_text
from harness.kinds.density.likelihoods import density, ranking
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults, write_report

SHARE = 0.2
DRAWN = {"seed", "split", "tuning", "permute"}


@pytest.fixture
def repeated(many_seeds, replanned):
    """Return a function that makes a run over repetitions from the seeds of `many_seeds`; `vary` is what they draw."""

    def make(number, vary=DRAWN, share=SHARE, **data):
        def change(trial):
            drawn = {
                "seed": {"seed": trial.seed if "seed" in vary else 0},
                "split": {"data.split": trial.seed if "split" in vary else None},
                "tuning": {"tuning.seed": 100 + trial.seed * ("tuning" in vary), "tuning.repetition": trial.seed},
                "permute": {"data.permute": trial.seed} if "permute" in vary else {},
            }
            settings = {f"data.{name}": value for name, value in data.items()}
            return {"repetition": trial.seed, **settings} | {k: v for each in drawn.values() for k, v in each.items()}

        plan, records = replanned(many_seeds(number), change, seeds=())
        for record in records:
            record.rows[0]["test_share"] = share
        return plan, records

    return make


def values_of(records, row, column="digits"):
    unit = {"digits": "bits_per_dim", "waveforms": "nats_per_dim"}[column]
    trials = [r for r in records if r.trial["layer"]["row"] == row and r.trial["data"]["label"] == column]
    return [record.rows[0][unit] for record in trials]


def test_rows_are_paired_by_repetition_with_corrected_intervals(repeated):
    """All repetitions have one seed of the training, so that seeds pair nothing."""
    results = Results.of(*repeated(8, vary={"split"}))
    assert set(density(results)["pair"]) == set(range(8)) and density(results)["seed"].nunique() == 1
    rank = ranking(results, "digits")
    assert rank.share == pytest.approx(SHARE) and rank.sample == "8 repetitions"
    assert {len(each.values) for each in rank.differences.values()} == {8} and rank.tested
    plan, records = repeated(8)
    report = ReportedResults.of(plan, records).report
    values = values_of(records, FIRST)
    error = statistics.stdev(values) * (1 / 8 + SHARE / (1 - SHARE)) ** 0.5
    low, high = stats.t.interval(0.95, 7, statistics.fmean(values), error)
    table = report.tables[0]
    assert table.rows[0][1] == f"{statistics.fmean(values):.3f} [{low:.3f}, {high:.3f}]"
    assert "mean [95 % corrected interval] of 8 repetitions" in table.caption


@pytest.mark.parametrize(
    ("vary", "data", "names"),
    [
        (DRAWN, {}, ("training seeds", "tuning points", "splits", "permutations")),
        ({"seed"}, {}, ("training seeds",)),
        ({"seed", "split"}, {"keep_test": True}, ("training seeds", "splits of training and validation events")),
        ({"split", "tuning"}, {}, ("tuning points", "splits")),
    ],
)
def test_the_sources_of_variation_are_read_off_the_trials(repeated, vary, data, names):
    plan, _ = repeated(3, vary=vary, **data)
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial) and trial.column == "digits"]
    assert sources(trials) == names and sources(trials[:3]) == ()


def test_what_was_drawn_once_may_order_the_layers_otherwise(repeated, many_seeds, replanned, one_seed):
    kept = repeated(8, vary={"seed", "split"}, share=0.0, keep_test=True)
    assert sources_text(Results.of(*kept)) == (
        "Intervals cover training seeds and splits of training and validation events (the test split is fixed): "
        "another tuning draw or another test split may order the layers otherwise."
    )
    permuted = replanned(many_seeds(3), lambda trial: {"data.permute": 0})
    assert "another permutation" in sources_text(Results.of(*permuted))
    assert sources_text(Results.of(*one_seed(many_seeds(3)))) == "", "no interval covers anything"


@pytest.mark.usefixtures("no_figures")
def test_all_pairs_are_data_beside_the_report(repeated, write_run):
    folder = write_run(*repeated(8))
    write_report(folder)
    assert "comparisons.csv</a>" in (folder / "index.html").read_text()
    frame = harness.comparisons(folder)
    assert len(frame) == 2 * 3 and frame.dtypes["pairs"] == "Int64" and frame.dtypes["separated"] == "boolean"
    read = pd.read_csv(io.BytesIO((folder / "comparisons.csv").read_bytes()), dtype=frame.dtypes.to_dict())
    pd.testing.assert_frame_equal(read, frame)
    results = Results.read(folder)
    for line in frame.itertuples():
        difference = ranking(results, line.dataset).differences[line.first, line.second]
        assert (line.difference, line.p, line.p_raw) == (difference.estimate.mean, difference.p, difference.p_raw)
        assert (line.low, line.high) == difference.interval and line.detectable == difference.detectable
        assert line.sources == "training seeds, tuning points, splits, permutations" and line.leads == difference.leads
    assert frame["margin"].isna().all(), "there are no controls"
    stated = harness.comparisons(folder, margin=0.05)
    assert (stated["margin"] == 0.05).all() and stated["p_equivalent"].between(0, 1).all()
    with pytest.raises(UserError, match=r"margin -1\.0: expected a positive number"):
        harness.comparisons(folder, margin=-1)


@pytest.mark.usefixtures("no_figures")
def test_a_report_without_pairs_has_no_such_file_and_removes_the_last_one(repeated, write_run, replanned):
    folder = write_run(*repeated(3))
    write_report(folder)
    assert (folder / "comparisons.csv").exists()
    folder = write_run(*replanned(repeated(3), lambda trial: {"tuning": None}))  # nothing is ranked
    write_report(folder)
    assert not (folder / "comparisons.csv").exists()
    assert harness.comparisons(folder).empty


def test_runs_of_another_kind_have_no_comparisons(runtime_run, write_run):
    with pytest.raises(UserError, match="of kind runtime, whose layers are not compared in pairs"):
        harness.comparisons(write_run(*runtime_run))


def test_the_margin_is_a_part_of_the_distance_between_controls(repeated, replanned):
    controls = {SECOND: "fixed", THIRD: "scale"}
    run = replanned(repeated(8), lambda trial: {"layer.layer": controls.get(trial.layer.row, trial.layer.layer)})
    frame = ReportedResults.of(*run).report.comparisons()
    digits = frame[frame["dataset"] == "digits"]
    distance = statistics.fmean(values_of(run[1], THIRD)) - statistics.fmean(values_of(run[1], SECOND))
    assert list(digits["margin"]) == pytest.approx([0.05 * distance] * 3)
    assert digits["p_equivalent"].notna().all() and (digits["p_equivalent"] > 0.05).all()


def test_a_mean_over_data_sets_has_the_largest_of_their_shares(repeated):
    plan, records = repeated(8)
    for record in records:
        if record.trial["data"]["label"] == "waveforms":
            record.rows[0] |= {"test_share": 0.1, "unit": "bits_per_dim"}
    plan = plan.model_copy(update={"averages": {"both": ("digits", "waveforms")}})
    results = Results.of(plan, records)
    shares = [ranking(results, label).share for label in ("digits", "waveforms", "both")]
    assert shares == pytest.approx([0.2, 0.1, 0.2])
