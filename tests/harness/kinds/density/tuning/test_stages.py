"""The two stages of a tuned suite: candidates, then the trials that take the choice of validation."""

import pytest

from harness.cli.parser import main
from harness.core.errors import SuiteError
from harness.execution.agenda import agenda, outlook, ready
from harness.kinds.density.tuning.choice import NoChoice, choose
from harness.planning.plan import Plan
from harness.reporting.compare.comparison import compare
from harness.reporting.compare.merge import join_plans, merge
from harness.reporting.frame import Results


def split(plan):
    return [t for t in plan.trials if t.kind == "tuning"], [t for t in plan.trials if t.kind == "density"]


def of_row(trials, row):
    return [trial for trial in trials if trial.layer.row == row]


def names(trials):
    return [trial.slug for trial in trials]


def test_candidates_run_first_and_each_final_waits_for_its_own(planned, leave, tmp_path):
    plan = planned()
    candidates, _ = split(plan)
    first = agenda(plan, tmp_path)
    assert [entry.text() for entry in first] == ["to run"] * 6 + ["to run, after 3 trials"] * 4
    assert ready(first, set()) == candidates
    assert outlook(plan, first, lambda trials: 2)[1:] == ["a run does 10 trials"]

    for candidate in of_row(candidates, "conv1x1"):
        leave(candidate)
    *others, killed = of_row(candidates, "butterfly")
    for candidate in others:
        leave(candidate)
    leave(killed, status="killed", notes={"signal": "SIGKILL"})
    entries = agenda(plan, tmp_path)
    assert names(ready(entries, set())) == ["digits-butterfly-c2", "digits-conv1x1-s0", "digits-conv1x1-s1"]
    assert names(ready(entries, {killed.id})) == ["digits-conv1x1-s0", "digits-conv1x1-s1"], (
        "a candidate that was killed again, or that a cluster still runs, has no outcome"
    )
    line = outlook(plan, entries, lambda trials: 2)[1]
    assert line == "a run does 5 trials, in about 45 s (from earlier trials, 2 at once)", "in proportion to the steps"


def test_a_candidate_that_runs_again_does_so_before_its_finals(planned, leave, tmp_path):
    plan = planned()
    candidates, finals = split(plan)
    failed, *others = of_row(candidates, "conv1x1")
    leave(failed, status="oom")
    for trial in others:
        leave(trial)
    for trial in of_row(finals, "conv1x1"):
        leave(trial, row={"candidate": 1})

    def conv1x1(**options):
        return [entry for entry in agenda(plan, tmp_path, **options) if entry.trial.layer.row == "conv1x1"]

    assert ready(conv1x1(), set()) == []
    assert ready(conv1x1(retry_failed=True), set()) == [failed]
    leave(failed, 1.0)
    entries = conv1x1()
    assert entries[-1].text() == "ok, stale: its tuning chose candidate 1 and now chooses 0"
    assert ready(entries, set()) == []
    assert ready(conv1x1(stale="rerun"), set()) == of_row(finals, "conv1x1")
    plan.save(tmp_path)
    assert set(Results.read(tmp_path).conflicts) == {trial.id for trial in of_row(finals, "conv1x1")}


def test_fewer_candidates_are_the_first_ones_and_zero_tunes_nothing(planned):
    candidates, finals = split(planned())
    fewer, others = split(planned("tuning.candidates=2"))
    assert fewer == candidates[:4] and not {trial.id for trial in others} & {trial.id for trial in finals}
    none, plain = split(planned("tuning.candidates=0"))
    assert none == [] and all(trial.tuning is None for trial in plain) and len(plain) == 4
    one_more, _ = split(planned("tuning.candidates=4"))
    assert one_more[:6] == candidates
    assert len(planned().due({})) == 10, "candidates and finals are of the same data"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.learning_rate=1e-3", "training.learning_rate is tuned, so that this has no effect"),
        ("layers.butterfly.options.initialisation=identity", "initialisation is tuned, so that this has no effect"),
        ("seeds=[3, 100]", "100 is also a seed of the final training"),
    ],
)
def test_an_option_that_contradicts_the_tuning_is_one_message(planned, change, words):
    with pytest.raises(SuiteError) as caught:
        planned(change)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("states", "unsupported", "final", "code"),
    [
        ("ok diverged failed", False, "ok", 0),
        ("ok error diverged", False, "ok", 1),
        ("diverged diverged diverged", False, "diverged", 1),
        ("unsupported unsupported unsupported", True, "unsupported", 0),
        ("diverged error failed", False, "error", 1),
        ("failed failed failed", False, "error", 1),
    ],
)
def test_exit_codes_and_the_outcome_without_a_choice(planned, leave, tmp_path, states, unsupported, final, code):
    plan = planned().model_copy(update={"unsupported": unsupported})
    candidates, finals = split(plan)
    for candidate, state in zip(candidates, [name for name in states.split() for _ in range(2)], strict=True):
        audit = {"row": {"audit": "failed", "audit_reason": "a reason"}} if state == "failed" else {}
        leave(candidate, status="ok" if state in ("ok", "failed") else state, **audit)
    for trial in finals:
        status = "ok"
        try:
            assert choose(trial, tmp_path).number == 0
        except NoChoice as error:
            status = error.status
            assert str(error).endswith("a reason")
        assert status == final
        leave(trial, status=status)
    accepted = all(entry.trial.accepts(entry.state, plan.unsupported) for entry in agenda(plan, tmp_path))
    assert accepted == (code == 0)


def test_compare_judges_finals_and_names_what_was_chosen(planned, leave, tmp_path, capsys):
    folders = [tmp_path / name for name in "ab"]
    for number, folder in enumerate(folders):
        plan = planned()
        plan.save(folder)
        for trial in plan.trials:
            if trial.kind == "density":
                leave(trial, out=folder, row={"candidate": number})
            else:
                leave(trial, 2.0 + (trial.candidate != number), out=folder)
    places = compare(*folders).places
    assert [tuple(place) for place in places] == [("digits", "conv1x1"), ("digits", "butterfly")]
    assert {place.verdict for place in places.values()} == {"same"}
    for place in places.values():
        assert place.reasons[0].startswith("chosen: ") and "training.learning_rate (" in place.reasons[0]
    planned("tuning.candidates=2").save(folders[1])
    leave(planned("tuning.candidates=2").trials[-1], out=folders[1])
    assert main(["compare", *map(str, folders)]) == 0
    assert "settings: tuning.candidates (a list of 3 and a list of 2)" in capsys.readouterr().out


def test_a_merge_takes_candidates_and_finals_of_different_folders(planned, leave, tmp_path):
    plan = planned()
    candidates, finals = split(plan)
    folders = [tmp_path / name for name in ("candidates", "finals")]
    for folder, trials in zip(folders, (candidates, finals), strict=True):
        plan.save(folder)
        for trial in trials:
            contradicts = trial.kind == "density" and trial.layer.row == "butterfly"
            leave(trial, 2.0 + trial.repeat_index, out=folder, row={"candidate": 1} if contradicts else {})
    [merged] = merge(folders, tmp_path / "merged")
    assert len(merged.records) == 10 and len(merged.conflicts) == 2
    assert "digits-butterfly-s0" in merged.conflicts[0] and "chose candidate 1 and now chooses 0" in merged.conflicts[0]
    results = Results.read(merged.folder)
    assert len(results.conflicts) == 2 and set(results.statuses.values()) == {"ok"}
    parts = [plan.model_copy(update={"trials": plan.trials[start::2]}) for start in (1, 0)]
    joined = join_plans(dict(zip(folders, parts, strict=True)))
    assert joined.trials == Plan.load(merged.folder).trials == plan.trials, "in the order of a run"
