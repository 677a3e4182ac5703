import copy
import math

import pytest

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.core.records import blank_record, write_record
from harness.core.settings import LayerRef
from harness.kinds.examination.trial import ConformanceTrial
from harness.planning.plan import Plan
from harness.reporting.compare.comparison import Thresholds, compare, comparison_table
from harness.reporting.compare.pairs import Place
from harness.reporting.statistics.statistics import judged

LAYER = LayerRef(row="x", layer="conv1x1")
SOURCES = {"flows/glow.py": "1", "layers/conv1x1.py": "2"}
ROWS = ("conv1x1", "my_layer & co", "<script>")


@pytest.fixture
def runs(tmp_path):
    """Return a function that writes two runs and returns their folders."""

    def write(*made):
        folders = []
        for name, (plan, records) in zip("ab", made, strict=True):
            folder = tmp_path / name / plan.suite
            plan.save(folder)
            for record in records:
                record.environment.setdefault("sources", dict(SOURCES))
                write_record(folder / "records", record)
            folders.append(folder)
        return folders

    return write


def verdicts(folders, *thresholds, **options):
    comparison = compare(*folders, Thresholds.parse(thresholds), **options)
    return {tuple(place): compared.verdict for place, compared in comparison.places.items()}


def moved(run, by, row=ROWS[1], column="digits"):
    """Add a number, or a function of the seed, to the likelihoods of one row and column."""
    plan, records = run
    for record in records:
        if record.trial["layer"]["row"] == row and record.trial["data"]["label"] == column:
            record.rows[0]["bits_per_dim"] += by(record.trial["seed"]) if callable(by) else by
    return plan, records


def code_of(folders, *arguments):
    return main(["compare", *map(str, folders), *arguments])


def test_equal_runs_are_the_same(many_seeds, runs, capsys):
    folders = runs(many_seeds(3), many_seeds(3))
    assert set(verdicts(folders).values()) == {"same"}
    assert code_of(folders) == 0
    text = capsys.readouterr().out
    assert "6 same" in text and "my_layer & co" in text, "a terminal needs no escapes"


def test_a_worse_likelihood_ends_with_1_and_a_better_one_with_0(many_seeds, runs, capsys):
    worse = runs(many_seeds(3), moved(many_seeds(3), 0.05))
    by_place = verdicts(worse)
    assert by_place.pop(("digits", ROWS[1])) == "worse" and set(by_place.values()) == {"same"}
    assert code_of(worse) == 1 and code_of(reversed(worse)) == 0
    assert "+0.050 [+0.050, +0.050]" in capsys.readouterr().out
    assert set(verdicts(worse, "0.06").values()) == {"same"}


def test_a_change_within_the_spread_of_seeds_is_not_significant(many_seeds, runs):
    """The mean exceeds the threshold, but the seeds disagree."""
    few = runs(many_seeds(3), moved(many_seeds(3), lambda seed: (0.5, -0.3, 0.1)[seed]))
    assert verdicts(few)["digits", ROWS[1]] == "not significant"
    caption = comparison_table(compare(*few, Thresholds())).caption
    assert "mean difference B - A [Holm-adjusted Student's 95 % interval] over paired seeds" in caption


def test_three_seeds_that_change_in_one_direction_are_corrected_for_all_rows(many_seeds, runs):
    """The interval of the row alone excludes zero, but there are six rows; two seeds have no interval at all."""
    few = runs(many_seeds(3), moved(many_seeds(3), lambda seed: (0.2, 0.3, 0.4)[seed]))
    row = compare(*few, Thresholds()).places[Place("digits", ROWS[1])]
    assert row.verdict == "not significant" and row.change.family == 6
    assert judged({"alone": row.change.values})["alone"].interval[0] > 0 > row.change.interval[0]
    two = runs(many_seeds(2), moved(many_seeds(2), lambda seed: (0.2, 0.3)[seed]))
    assert verdicts(two)["digits", ROWS[1]] == "worse"
    assert "B - A over paired seeds" in comparison_table(compare(*two, Thresholds())).caption


def test_from_eight_seeds_on_the_corrected_paired_test_decides(many_seeds, runs):
    """The interval excludes zero, but Holm's correction for six rows raises p from 0.03 to 0.2."""

    def by(seed):
        return 0.1 + 0.115 * math.copysign(1, seed % 2 - 0.5) * (0.5 + seed / 8)

    comparison = compare(*runs(many_seeds(8), moved(many_seeds(8), by)), Thresholds())
    row = comparison.places[Place("digits", ROWS[1])]
    assert row.change.estimate.low > 0 and 0.15 < row.change.p < 0.25
    assert row.verdict == "not significant"


def test_different_data_are_not_comparable(many_seeds, runs, replanned, capsys):
    checksums = {"digits": "abc", "waveforms": None}
    changed = replanned(many_seeds(3), lambda trial: {"data.checksum": checksums[trial.data.label]})
    folders = runs(many_seeds(3), changed)
    by_place = verdicts(folders)
    assert {by_place["digits", row] for row in ROWS} == {"not comparable"}
    assert {by_place["waveforms", row] for row in ROWS} == {"same"}
    assert code_of(folders) == 0 and "data differ: data.checksum (None and abc)" in capsys.readouterr().out


def test_runs_with_different_settings_are_compared(many_seeds, runs, replanned, capsys):
    changed = replanned(moved(many_seeds(3), 0.05), lambda trial: {"training.steps": 50})
    folders = runs(many_seeds(3), changed)
    assert verdicts(folders)["digits", ROWS[1]] == "worse"
    assert code_of(folders) == 1 and "settings: training.steps (40 and 50)" in capsys.readouterr().out


def test_different_source_is_comparable_only_with_other_code(many_seeds, runs, capsys):
    plan, records = moved(many_seeds(3), 0.05)
    for record in records:
        record.environment["sources"] = SOURCES | {"layers/conv1x1.py": "3"}
    folders = runs(many_seeds(3), (plan, records))
    assert set(verdicts(folders).values()) == {"not comparable"}
    assert code_of(folders) == 2, "a comparison without comparable places is an error"
    assert "source differs: layers/conv1x1.py changed" in capsys.readouterr().out
    assert code_of(folders, "--other-code") == 1
    assert "source: layers/conv1x1.py changed" in capsys.readouterr().out


def test_records_without_digests_of_source_are_not_comparable(many_seeds, runs):
    plan, records = many_seeds(3)
    records[0].environment["sources"] = None
    compared = compare(*runs((plan, records), many_seeds(3)), Thresholds()).places[Place("digits", ROWS[0])]
    assert compared.verdict == "same" and "seed 0: source differs: not every record says" in compared.reasons[0]


def test_a_new_failure_or_failed_audit_is_worse(many_seeds, runs, capsys):
    plan, records = many_seeds(3)
    records[0] = blank_record(plan.trials[0], "diverged", "loss is nan at step 3")
    records[4].rows[0] |= {"audit": "failed", "audit_reason": "log-det is 1, slogdet 16"}
    records[4].audit["verdict"] = "failed"
    folders = runs(many_seeds(3), (plan, records))
    by_place = verdicts(folders)
    bad = [("digits", ROWS[0]), ("waveforms", ROWS[1])]
    assert {by_place.pop(place) for place in bad} == {"worse"} and set(by_place.values()) == {"same"}
    assert code_of(folders) == 1
    text = capsys.readouterr().out
    assert "diverged (loss is nan at step 3) in B" in text and "audit failed (log-det is 1, slogdet 16) in B" in text
    assert {verdicts(folders[::-1])[place] for place in bad} == {"better"}
    assert verdicts([folders[1], folders[1]])[bad[0]] == "same", "two seeds of three"


def test_trials_of_only_one_run_are_reported(many_seeds, runs, capsys):
    plan, records = many_seeds(3)
    folders = runs(many_seeds(2), (plan, records[:-1]))
    comparison = compare(*folders, Thresholds())
    assert "seed 2: no such trial in A" in comparison.places[Place("digits", ROWS[0])].reasons
    alone = compare(folders[1], folders[1], Thresholds()).places[Place("waveforms", ROWS[2])]
    assert "seed 2: not run in A" in alone.reasons and alone.verdict == "same"


def slower(run, factor, row=ROWS[1], operation="forward"):
    plan, records = run
    for record in records:
        for line in record.rows:
            if (line["layer"], line["operation"]) == (row, operation) and "median_ms" in line:
                line["median_ms"] *= factor
    return plan, records


def test_times_differ_only_beyond_threshold_and_spread(runtime_run, runs, capsys):
    plan, records = runtime_run
    copies = copy.deepcopy(records)
    folders = runs((plan, records), slower((plan, copies), 1.2))
    by_place = verdicts(folders)
    place = ("spatial, 3×16×16, batch 4, forward", ROWS[1])
    assert by_place[place] == "worse" and by_place[place[0], ROWS[0]] == "same"
    assert by_place["spatial, 3×8×8, batch 4, forward", ROWS[2]] == "not comparable", "unsupported in both"
    assert verdicts(folders, "30%")[place] == "same"
    assert code_of(folders) == 1 and code_of(reversed(folders)) == 0
    assert "+20.0 %" in capsys.readouterr().out
    for record in copies:
        for line in record.rows:
            line["iqr_ms"] = line.get("median_ms", 0) / 2
    assert verdicts(runs((plan, records), (plan, copies)))[place] == "not significant"


def test_times_of_two_machines_are_not_comparable(runtime_run, runs, capsys):
    plan, records = runtime_run
    copies = copy.deepcopy(records)
    for here, there in zip(records, copies, strict=True):
        here.environment["cpu"], there.environment["cpu"] = "One", "Two"
    folders = runs((plan, records), (plan, copies))
    assert set(verdicts(folders).values()) == {"not comparable"} and code_of(folders) == 2
    text = capsys.readouterr().out
    assert "times of different machines: One" in text and "processor: One in A, Two in B" in text


def test_every_row_of_a_trial_without_a_measure_must_agree(runs):
    """A conformance trial has a row for random and one for trained weights."""
    trial = ConformanceTrial(suite="c", profile="quick", label="2x4x4", layer=LAYER, shape=(2, 4, 4))
    record = blank_record(trial, "ok", None)
    record.rows = [case | {"inverse_error": 1e-6, "conforms": True} for case in trial.cases]
    other = copy.deepcopy(record)
    other.rows[0]["inverse_error"] = 1e-5
    about = {"suite": "c", "title": "C", "question": "", "profile": "quick", "device": "cpu", "rows": ("x",)}
    plan = Plan(kind="conformance", columns=(trial.column,), trials=(trial,), **about)
    comparison = compare(*runs((plan, [record]), (plan, [other])), Thresholds())
    assert [place.verdict for place in comparison.places.values()] == ["worse", "same"]


def test_parameter_counts_are_compared(parameters_run, runs):
    plan, records = parameters_run
    copies = copy.deepcopy(records)
    copies[0].rows[0]["parameters"] = 2000
    by_place = verdicts(runs((plan, records), (plan, copies)))
    assert by_place.pop(("mimic, width 16", ROWS[0])) == "worse" and set(by_place.values()) == {"same"}


def test_a_markdown_file_on_request(many_seeds, runs, tmp_path, capsys):
    folders = runs(many_seeds(2), many_seeds(2))
    assert code_of(folders, "--markdown", str(tmp_path / "c.md")) == 0
    text = (tmp_path / "c.md").read_text()
    assert text.count("|:--") == 1 and "&lt;script>" in text
    assert code_of(folders, "--markdown", str(tmp_path)) == 2 and "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--threshold", "much"], "--threshold much: expected"),
        (["--threshold", "nan"], "--threshold nan: expected"),
        (["--threshold", "-1%"], "expected"),
    ],
)
def test_a_wrong_threshold_is_one_message(many_seeds, runs, capsys, arguments, words):
    folders = runs(many_seeds(2), many_seeds(2))
    joined = [f"{arguments[0]}={arguments[1]}"]
    assert code_of(folders, *joined) == 2 and words in capsys.readouterr().err


def test_runs_of_different_kinds_and_unreadable_runs_are_errors(many_seeds, parameters_run, runs, tmp_path, capsys):
    folders = runs(many_seeds(2), parameters_run)
    with pytest.raises(UserError, match="of kind density"):
        compare(*folders, Thresholds())
    assert code_of([folders[0], tmp_path]) == 2 and "no plan.json" in capsys.readouterr().err
    (damaged,) = list((folders[0] / "records").glob("digits-conv1x1-s0*"))
    damaged.write_text("{")
    assert code_of([folders[0], folders[0]]) == 1
    out = capsys.readouterr().out
    assert f"damaged in A: records/{damaged.name}: not a readable record" in out and "not run" not in out
