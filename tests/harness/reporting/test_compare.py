"""Comparisons of two runs, as `compare` prints them in both directions, with the exit code of each."""

import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from toys import FIRST, SECOND

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.core.records import blank_record, write_record
from harness.core.settings import LayerRef
from harness.kinds.examination.trial import ConformanceTrial
from harness.planning.plan import Plan
from harness.reporting.compare.comparison import compare
from harness.reporting.compare.pairs import Place
from harness.reporting.statistics.statistics import judged

SOURCES = {"flows/glow.py": "1", "layers/conv1x1.py": "2"}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return a function that writes two runs below the working directory and returns their folders."""
    monkeypatch.chdir(tmp_path)

    def write(*made):
        folders = []
        for name, (plan, records) in zip("ab", made, strict=True):
            folder = tmp_path / name / plan.suite
            plan.save(folder)
            for record in records:
                record.environment.setdefault("sources", dict(SOURCES))
                write_record(folder / "records", record)
            folders.append(folder.relative_to(tmp_path))
        return folders

    return write


@pytest.fixture
def made(many_seeds, replanned, runtime_run, parameters_run):
    """Return the fixtures of made-up runs by name; a run of times or counts is made anew by each access."""
    timed, counted = ((lambda run=run: (run[0], copy.deepcopy(run[1]))) for run in (runtime_run, parameters_run))
    return SimpleNamespace(seeds=many_seeds, changed=replanned, timed=timed, counted=counted)


MOVED = {  # what each seed of the second layer gets on digits
    "worse": (0.05, 0.05, 0.05),
    "within_the_spread": (0.5, -0.3, 0.1),  # the mean exceeds the threshold, but the seeds disagree
    "one_direction": (0.2, 0.3, 0.4),  # the interval of the row alone excludes zero, but there are six rows
    "two_seeds": (0.2, 0.3),  # no interval at all
    # The bootstrap interval excludes zero, but Holm's correction for six rows raises p from 0.03 to 0.2.
    "eight_seeds": tuple(0.1 + 0.115 * (-1, 1)[seed % 2] * (0.5 + seed / 8) for seed in range(8)),
}


def moved(made, name="worse"):
    """Return the run whose second layer has moved on digits."""
    plan, records = made.seeds(len(MOVED[name]))
    for record in records:
        if record.trial["layer"]["row"] == SECOND and record.trial["data"]["label"] == "digits":
            record.rows[0]["bits_per_dim"] += MOVED[name][record.trial["seed"]]
    return plan, records


def before_and_after(made, name):
    return made.seeds(len(MOVED[name])), moved(made, name)


def equal(made):
    return made.seeds(3), made.seeds(3)


def other_data(made):
    checksums = {"digits": "abc", "waveforms": None}
    return made.seeds(3), made.changed(made.seeds(3), lambda trial: {"data.checksum": checksums[trial.data.label]})


def other_settings(made):
    return made.seeds(3), made.changed(moved(made), lambda trial: {"training.steps": 50})


def other_source(made):
    """All records of other source: nothing to compare, unless --other-code is given."""
    plan, records = moved(made)
    for record in records:
        record.environment["sources"] = SOURCES | {"layers/conv1x1.py": "3"}
    return made.seeds(3), (plan, records)


def no_digests(made):
    plan, records = made.seeds(3)
    records[0].environment["sources"] = None
    return (plan, records), made.seeds(3)


def failures(made):
    """One trial diverged, another one failed its audit."""
    plan, records = made.seeds(3)
    records[0] = blank_record(plan.trials[0], "diverged", "loss is nan at step 3")
    records[4].rows[0] |= {"audit": "failed", "audit_reason": "log-det is 1, slogdet 16"}
    records[4].audit["verdict"] = "failed"
    return made.seeds(3), (plan, records)


def failures_in_both(made):
    """Two seeds of three."""
    return failures(made)[1], failures(made)[1]


def trials_of_one_run(made):
    plan, records = made.seeds(3)
    return made.seeds(2), (plan, records[:-1])


def not_run(made):
    plan, records = made.seeds(3)
    return (plan, records[:-1]), made.seeds(3)


def slower(made):
    plan, records = made.timed()
    for line in (line for record in records for line in record.rows):
        if (line["layer"], line["operation"]) == (SECOND, "forward"):
            line["median_ms"] *= 1.2
    return made.timed(), (plan, records)


def slower_within_the_spread(made):
    run, (plan, records) = slower(made)
    for line in (line for record in records for line in record.rows):
        line["iqr_ms"] = line.get("median_ms", 0) / 2
    return run, (plan, records)


def other_machine(made):
    two = made.timed(), made.timed()
    for (_, records), cpu in zip(two, ("One", "Two"), strict=True):
        for record in records:
            record.environment["cpu"] = cpu
    return two


def other_counts(made):
    plan, records = made.counted()
    records[0].rows[0]["parameters"] = 2000
    return made.counted(), (plan, records)


def several_rows(made):
    """A trial without a measure, of which every row must agree: one for random and one for trained weights."""
    layer = LayerRef(row="x", layer="conv1x1")
    trial = ConformanceTrial(suite="c", profile="quick", label="2x4x4", layer=layer, shape=(2, 4, 4))
    record = blank_record(trial, "ok", None)
    record.rows = [case | {"inverse_error": 1e-6, "conforms": True} for case in trial.cases]
    other = replace(record, rows=[record.rows[0] | {"inverse_error": 1e-5}, record.rows[1]])
    about = {"suite": "c", "title": "C", "question": "", "profile": "quick", "device": "cpu", "rows": ("x",)}
    plan = Plan(kind="conformance", columns=(trial.column,), trials=(trial,), **about)
    return (plan, [record]), (plan, [other])


OTHERS = (equal, other_data, other_settings, other_source, no_digests, failures, failures_in_both, trials_of_one_run)
OTHERS += (not_run, slower, slower_within_the_spread, other_machine, other_counts, several_rows)
SCENES = {scene.__name__: scene for scene in OTHERS}
SCENES |= {name: partial(before_and_after, name=name) for name in MOVED}
OPTIONS = {"worse": ["--threshold", "0.06"], "slower": ["--threshold", "30%"], "other_source": ["--other-code"]}


@pytest.mark.parametrize("name", SCENES)
def test_a_comparison_has_the_text_of_its_file(name, made, runs, capsys, check_text):
    a, b = map(str, runs(*SCENES[name](made)))
    texts = []
    for arguments in ([a, b], [b, a], *([[a, b, *OPTIONS[name]]] if name in OPTIONS else [])):
        code = main(["compare", *arguments])
        texts.append(f"$ compare {' '.join(arguments)}: exit code {code}\n{capsys.readouterr().out}")
    check_text(f"compare_{name}", *texts)


def test_the_correction_is_for_all_rows(made, runs):
    row = compare(*runs(*before_and_after(made, "one_direction"))).places[Place("digits", SECOND)]
    assert row.change.family == 6 and judged({"alone": row.change.values})["alone"].interval[0] > 0
    row = compare(*runs(*before_and_after(made, "eight_seeds"))).places[Place("digits", SECOND)]
    assert row.change.estimate.low > 0 and 0.15 < row.change.p < 0.25


def test_a_markdown_file_on_request(made, runs, tmp_path, capsys):
    command = ["compare", *map(str, runs(*before_and_after(made, "two_seeds"))), "--markdown"]
    assert main([*command, str(tmp_path / "c.md")]) == 1
    text = (tmp_path / "c.md").read_text()
    assert text.count("|:--") == 1 and "&lt;script>" in text
    assert main([*command, str(tmp_path)]) == 2 and "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(("threshold", "words"), [("much", "much: expected"), ("nan", "nan: expected"), ("-1%", "exp")])
def test_a_wrong_threshold_is_one_message(made, runs, capsys, threshold, words):
    assert main(["compare", *map(str, runs(*before_and_after(made, "two_seeds"))), f"--threshold={threshold}"]) == 2
    assert words in capsys.readouterr().err


def test_runs_of_different_kinds_and_unreadable_runs_are_errors(made, runs, tmp_path, capsys):
    first, second = runs(made.seeds(2), made.counted())
    with pytest.raises(UserError, match="of kind density"):
        compare(first, second)
    assert main(["compare", str(first), str(tmp_path)]) == 2 and "no plan.json" in capsys.readouterr().err
    (damaged,) = list((first / "records").glob(f"digits-{FIRST}-s0*"))
    damaged.write_text("{")
    assert main(["compare", str(first), str(first)]) == 1
    out = capsys.readouterr().out
    assert f"damaged in A: records/{damaged.name}: not a readable record" in out and "not run" not in out
