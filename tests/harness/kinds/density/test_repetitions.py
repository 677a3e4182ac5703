"""Repetitions of a suite: what each draws anew, what all layers share, and what the command line selects."""

from collections import defaultdict

import pytest
from toys import write_suite

from harness.core.errors import SuiteError, UserError
from harness.planning.settle import settle
from harness.planning.suite import read_suite

SUITE = """\
suite: repeated
kind: density
layers:
  conv1x1: {}
  butterfly: {options: {levels: 3}, tune: {initialisation: [identity, rotation]}}
tuning:
  candidates: 2
  steps: 2
  seed: 50
  space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}
training: {batch_size: 8, steps: 4}
flow: {levels: 1, steps: 1, width: 4}
profiles:
  smoke:
    seeds: 2
    datasets: {digits: {permute: per-seed}}
  quick:
    repetitions: {number: 3}
    datasets:
      digits: {}
      permuted: {data: digits, permute: per-seed}
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return a function that plans the suite under `--set` options and others of the command line."""
    path = write_suite(tmp_path_factory.mktemp("repeated"), SUITE)

    def plan(*settings, profile="quick", **options):
        return settle(read_suite(path), profile, "cpu", settings=settings, **options).plan()

    return plan


def drawn(trials, repetition="repetition"):
    """Return (data set, repetition) -> the draws of its trials, each as a text, by source."""
    draws = defaultdict(lambda: defaultdict(set))
    for trial in trials:
        if trial.kind == "density":
            rates = [dict(changes)["training.learning_rate"] for changes in trial.tuning.candidates]
            values = {
                "training": trial.seed,
                "tuning": (trial.tuning.seed, *rates),
                "split": trial.data.split,
                "permutation": trial.data.permutation_seed(trial.seed) if trial.column == "permuted" else None,
            }
            for source, value in values.items():
                draws[trial.column, getattr(trial, repetition)][source].add(value)
    return draws


def test_a_repetition_draws_everything_anew_for_all_layers_alike(planned):
    draws = drawn(planned().plan.trials)
    assert sorted(draws) == [(column, number) for column in ("digits", "permuted") for number in range(3)]
    for of_repetition in draws.values():
        assert {source: len(values) for source, values in of_repetition.items()} == dict.fromkeys(of_repetition, 1)
    for source in ("training", "tuning", "split", "permutation"):
        assert len(set.union(*(draws["permuted", number][source] for number in range(3)))) == 3
    assert draws["digits", 1]["permutation"] == {None}, "only `permute: per-seed` is drawn"


@pytest.mark.parametrize("source", ["training", "tuning", "split", "permutation"])
def test_what_does_not_vary_is_drawn_once(planned, source):
    draws = drawn(planned(f"repetitions.vary=[{source}]").plan.trials)
    for other in ("training", "tuning", "split", "permutation"):
        values = set.union(*(draws["permuted", number][other] for number in range(3)))
        assert len(values) == (3 if other == source else 1)


def test_candidates_are_those_of_their_repetition_and_shared_where_nothing_of_theirs_varies(planned):
    trials = planned().plan.trials
    candidates = [trial for trial in trials if trial.kind == "tuning"]
    assert len(candidates) == 3 * 2 * 2 * 2, "repetitions, data sets, layers, candidates"
    for trial in trials:
        if trial.kind == "density":
            assert {early.repetition for early in trial.candidates} == {trial.repetition}
            assert {(early.data, early.seed) for early in trial.candidates} == {(trial.data, trial.tuning.seed)}
    shared = [trial for trial in planned("repetitions.vary=[training]").plan.trials if trial.kind == "tuning"]
    assert len(shared) == 2 * 2 * 2 and {trial.repetition for trial in shared} == {None}
    # The permutation of a data set without one does not vary, so that its candidates are shared.
    some = [trial for trial in planned("repetitions.vary=[permutation]").plan.trials if trial.kind == "tuning"]
    assert {trial.column: trial.repetition for trial in some} == {"digits": None, "permuted": 2}
    assert len(some) == 2 * 2 + 3 * 2 * 2


def test_repetitions_are_outermost_keep_test_splits_and_leave_seeds_alone_as_before(planned):
    order = [(trial.repetition, trial.kind) for trial in planned().plan.trials]
    assert list(dict.fromkeys(order)) == [(number, kind) for number in range(3) for kind in ("tuning", "density")]
    trials = planned("repetitions.keep_test=true").plan.trials
    assert {(trial.data.split, trial.data.keep_test) for trial in trials} == {(0, True), (1, True), (2, True)}
    # Trials without repetitions say nothing of them, so that their ids are those of records from before.
    for trial in planned(profile="smoke").plan.trials:
        content = trial.model_dump(mode="json")
        assert not {"repetition", "split", "keep_test"} & {*content, *content["data"], *content.get("tuning", ())}


@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_another_draw_shares_nothing_with_the_first(planned, profile):
    first, second = planned(profile=profile).plan.trials, planned("draw=1", profile=profile).plan.trials
    assert len(first) == len(second) and not {trial.id for trial in first} & {trial.id for trial in second}
    repetition = "seed" if profile == "smoke" else "repetition"
    draws = [drawn(trials, repetition) for trials in (first, second)]
    for source in ("training", "tuning") if profile == "smoke" else ("training", "tuning", "split", "permutation"):
        values = [set.union(*(of[source] for of in every.values())) - {None} for every in draws]
        assert values[0] and not values[0] & values[1], source


def test_only_selects_a_repetition_with_its_candidates(planned):
    plan, selected = planned(only=["repetition=1", "dataset=digits"])
    assert {(trial.column, trial.repetition) for trial in selected} == {("digits", 1)}
    assert len(selected) == 2 * (2 + 1) and len(plan.trials) == 3 * 2 * 2 * (2 + 1)
    shared = planned("repetitions.vary=[training]", only=["repetition=1"]).selected
    assert len(shared) == 2 * 2 * (2 + 1), "all candidates, as the selected trials need them"
    with pytest.raises(UserError, match="--only repetition=3: nothing in this profile has it; known: 0, 1, 2"):
        planned(only=["repetition=3"])
    with pytest.raises(UserError, match="--only seed=0: nothing in this profile has it; there are none"):
        planned(only=["seed=0"])


def test_the_strongest_of_seeds_and_repetitions_counts(planned):
    def repeats(*settings, profile="quick", **options):
        trials = [trial for trial in planned(*settings, profile=profile, **options).plan.trials if trial.stage]
        return {(trial.column, trial.repeat) for trial in trials}

    of_digits = {("digits", "repetition 0"), ("digits", "repetition 1")}
    assert repeats("repetitions.number=2", profile="smoke") == of_digits, "over the file's seeds"
    assert repeats(seeds=1) == {("digits", "seed 0"), ("permuted", "seed 0")}, "--seeds, over the file's repetitions"
    mixed = repeats("datasets.digits.seeds=1", "repetitions.number=1")
    assert mixed == {("digits", "seed 0"), ("permuted", "repetition 0")}
    assert repeats("repetitions=null") == {("digits", "seed 0"), ("permuted", "seed 0")}


@pytest.mark.parametrize(
    ("settings", "splits"),
    [
        ([], [None] * 5),
        (["repetitions.number=3"], [None] * 3),
        (["datasets.digits.repetitions.number=2"], [None] * 2),
        (["repetitions.number=3", "datasets.digits.repetitions.number=2"], [None] * 2),
        (["repetitions.vary=[split]"], [*range(5)]),
        (["repetitions={number: 3, vary: [split]}"], [*range(3)]),
    ],
)
def test_an_option_for_all_data_sets_changes_nothing_else_that_one_states(tmp_path, settings, splits):
    own = SUITE.replace("digits: {}", "digits: {repetitions: {number: 5, vary: [training, tuning]}}")
    trials = settle(read_suite(write_suite(tmp_path, own)), "quick", "cpu", settings=settings).plan().plan.trials
    found = [
        trial.data.split for trial in trials if trial.stage and trial.place == "digits" and trial.rows == ("conv1x1",)
    ]
    assert found == splits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("repetitions.number=0", "=0: profiles.quick.repetitions.number: the number 0 must be at least 1"),
        ("repetitions.number=101", "repetitions.number: the number 101 must be at most 100"),
        ("repetitions.vary=[]", "repetitions.vary"),
        ("repetitions.vary=[split, split]", "a source of variation stands twice"),
        ("repetitions.vary=[seeds]", "'seeds'"),
        ("repetitions.keep_test=1", "repetitions.keep_test"),
        ("repetitions={number: 2, vary: [tuning], keep_test: true}", "keep_test: has no effect where the split does"),
        ("draw=-1", "draw: the number -1 must be at least 0"),
        ("tuning.seed=2", "tuning.seed: 2 is also a seed of the final training"),
    ],
)
def test_a_wrong_repetition_is_one_clear_error(planned, change, message):
    with pytest.raises(SuiteError) as caught:
        planned(change)
    assert message in str(caught.value)


def test_seeds_beside_repetitions_in_one_part_of_a_file_are_refused(tmp_path):
    path = write_suite(tmp_path, SUITE, "{number: 3}", "{number: 3}\n    seeds: 2")
    with pytest.raises(SuiteError, match=r"repeated.yaml:\d+:\d+: repetitions and seeds exclude each other; keep one"):
        settle(read_suite(path), "quick", "cpu")
    path = write_suite(tmp_path, SUITE, "      digits: {}\n", "      waveforms: {}\n")
    settle(read_suite(path), "quick", "cpu")
    generated = r"repeated.yaml:\d+:\d+: data set waveforms: is generated and has no test split"
    with pytest.raises(SuiteError, match=generated):
        settle(read_suite(path), "quick", "cpu", settings=["repetitions.keep_test=true"])
    settle(read_suite(path), "quick", "cpu", settings=["repetitions={number: 2, vary: [training, tuning]}"])
