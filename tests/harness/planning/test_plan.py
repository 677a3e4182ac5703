"""Plans: precedence of settings, `--set` and `--only`, and ids that change with the settings."""

import json

import pytest

from harness.core.errors import SuiteError, UserError
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.plan import Plan, Section
from harness.planning.settle import load_suite, scope_of, settle
from layers import LAYERS

SUITE = """\
suite: tiny
kind: density
title: Tiny
flow: {levels: 1, steps: 1, width: 1}
training: {steps: 1, batch_size: 1, learning_rate: 1.0}
layers:
  conv1x1: {}
  woodbury: {options: {rank_channels: 1, rank_space: 1}, flow: {width: 4}, training: {batch_size: 4}}
profiles:
  smoke:
    datasets: {digits: {}}
  quick:
    seeds: 2
    threads: 2
    flow: {width: 2, steps: 2}
    training: {batch_size: 2}
    layers:
      woodbury: {options: {rank_channels: 5}, flow: {width: 5}}
    datasets:
      digits:
        flow: {width: 3, steps: 3}
        training: {batch_size: 3}
        layers: {woodbury: {options: {rank_space: 6}, flow: {prior: learned}}}
      shuffled: {data: digits, permute: 7}
"""


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the suite of a text."""

    def read(text):
        (tmp_path / "tiny.yaml").write_text(text)
        return load_suite(tmp_path / "tiny.yaml")

    return read


@pytest.fixture
def suite(read):
    return read(SUITE)


def packaged(name, profile="smoke", **changes):
    """Return the plan of a packaged suite, and its selected trials."""
    return settle(load_suite(name), profile, "cpu", **changes).plan()


def plan(suite, profile="quick", **changes):
    return settle(suite, profile, "cpu", **changes).plan()[0]


def picked(suite, *only):
    """Return (column, row, seed) of the trials that `--only` picks; check that the plan is unchanged."""
    made, trials = settle(suite, "quick", "cpu", only=only).plan()
    assert made == plan(suite)
    return {(trial.data.label, trial.layer.row, trial.seed) for trial in trials}


def trial(made, column, row, seed=0):
    return next(t for t in made.trials if (t.data.label, t.layer.row, t.seed) == (column, row, seed))


def ids(made):
    return [trial.id for trial in made.trials]


def test_the_most_specific_setting_takes_precedence(suite):
    made = plan(suite)
    plain = trial(made, "digits", "conv1x1")
    assert (plain.flow.width, plain.flow.steps, plain.flow.levels) == (3, 3, 1)  # the data set's, over the profile's
    assert (plain.training.batch_size, plain.training.steps, plain.training.learning_rate) == (3, 1, 1.0)
    special = trial(made, "digits", "woodbury")
    assert special.flow.width == 5  # the profile's row, over the suite's row, over the data set
    assert special.training.batch_size == 4  # the suite's row, over the data set
    assert special.flow.prior == "learned"
    assert dict(special.layer.options) == {"rank_channels": 5, "rank_space": 6}
    elsewhere = trial(made, "shuffled", "woodbury")
    assert dict(elsewhere.layer.options) == {"rank_channels": 5, "rank_space": 1}
    assert (elsewhere.data.name, elsewhere.data.permute, elsewhere.threads) == ("digits", 7, 2)
    assert trial(plan(suite, "smoke"), "digits", "woodbury").flow.width == 4


def test_the_place_of_a_setting_is_the_strongest_that_states_it(suite):
    def place(column, *setting, **changes):
        (cell,) = (cell for cell in scope_of(suite, "quick", **changes).cells[column] if cell.row == "woodbury")
        return cell.place(*setting)

    quick = ("profiles", "quick")
    assert place("digits", "flow", "width").place == (*quick, "layers", "woodbury", "flow", "width")
    assert place("digits", "flow", "steps").place == (*quick, "datasets", "digits", "flow", "steps")
    assert place("shuffled", "flow", "steps").place == (*quick, "flow", "steps")
    assert place("digits", "flow", "levels").place == ("flow", "levels")
    assert place("digits", "flow", "turn") is None
    changed = place("digits", "flow", "width", settings=["flow.width=9"])
    assert changed.place == (*quick, "flow", "width") and changed.origin == "--set flow.width=9"


def test_set_takes_precedence_over_the_suite(suite):
    made = plan(
        suite,
        settings=[
            "flow.width=9",
            "training.learning_rate=1e-3",
            "training.batch_size=8",
            "layers.woodbury.options.rank_space=7",
            "layers.woodbury.training.batch_size=6",
            "datasets.digits.permute=3",
            "datasets.digits.flow.steps=4",
        ],
    )
    special, plain = trial(made, "digits", "woodbury"), trial(made, "digits", "conv1x1")
    assert special.flow.width == plain.flow.width == 9
    assert plain.training.learning_rate == 1e-3
    assert (plain.training.batch_size, special.training.batch_size) == (8, 6)
    assert dict(special.layer.options) == {"rank_channels": 5, "rank_space": 7}
    assert (plain.data.permute, plain.flow.steps) == (3, 4)
    other = trial(made, "shuffled", "conv1x1")
    assert (other.data.permute, other.flow.steps) == (7, 2)


def test_the_last_set_takes_precedence(suite):
    for texts in (["flow.width=8", "flow.width=9"], ["training.learning_rate=1", "flow={width: 9}"]):
        flow = trial(plan(suite, settings=texts), "digits", "conv1x1").flow
        assert (flow.width, flow.steps) == (9, 3), "the width that was set, and no other setting of the profile's flow"


def test_seeds_come_from_suite_option_and_set(suite):
    assert plan(suite).seeds == (0, 1)
    assert plan(suite, seeds=3).seeds == (0, 1, 2)
    assert plan(suite, seeds=3, settings=["seeds=[5, 9]"]).seeds == (5, 9)
    made = plan(suite, seeds=1, settings=["datasets.digits.seeds=[3]"])
    assert {(trial.data.label, trial.seed) for trial in made.trials} == {("digits", 3), ("shuffled", 0)}
    seeds = [trial.seed for trial in plan(suite).trials]
    assert seeds == sorted(seeds)  # an unfinished run compares all layers on the first seeds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training.stepz=3", "unknown key 'stepz' in profiles.quick.training; did you mean steps?"),
        ("training.steps=0", "must be at least 1"),
        ("training.steps", "not of the form path=value"),
        ("=3", "not of the form path=value"),
        ("training.steps=!!python/name:os.system", "is not allowed"),
        ("layers.woodbry.options.rank_space=3", "no row 'woodbry'; did you mean woodbury?"),
        ("layers.woodbury.options.rank=3", "option 'rank' is unknown"),
        ("layers.woodbury.options.rank_space=x", "'x'"),
        ("layers.woodbury.rank_space=3", "unknown key 'rank_space' in profiles.quick.layers.woodbury"),
        ("datasets.digts.permute=3", "no data set 'digts'; did you mean digits?"),
        ("datasets.digits.dequantise=false", "on a lattice"),
        ("datasets.digits.preprocessing=log", "expected scale, standard, asinh, logit; or a list"),
        ("widths=[3]", "unknown key 'widths'"),
        ("seeds=0", "a number of seeds"),
    ],
)
def test_a_wrong_set_is_one_clear_error(suite, text, words):
    with pytest.raises(SuiteError) as caught:
        plan(suite, settings=[text])
    message = str(caught.value)
    assert message.startswith(f"--set {text}") and words in message and "\n" not in message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("training.stepz=x", "flow.width=y"),
        ("layers.woodbury.options={rank_space: 2, rank_channels: x}", "layers.woodbury.options.rank_space=y"),
    ],
)
def test_each_error_names_the_set_that_caused_it(suite, first, second):
    with pytest.raises(SuiteError) as caught:
        plan(suite, settings=[first, second])
    lines = sorted(str(caught.value).splitlines(), key=lambda line: "'y'" in line)
    assert len(lines) == 2 and lines[0].startswith(f"--set {first}: ") and lines[1].startswith(f"--set {second}: ")


def test_a_set_that_makes_a_shape_impossible_is_refused(suite):
    with pytest.raises(SuiteError, match=r"event shape \(1, 8, 8\) with levels = 4"):
        plan(suite, settings=["flow.levels=4"])


def test_only_picks_trials(suite):
    assert len(picked(suite)) == 8
    assert {row for _, row, _ in picked(suite, "layer=woodbury")} == {"woodbury"}
    assert picked(suite, "layer=woodbury,dataset=shuffled,seed=1") == {("shuffled", "woodbury", 1)}
    assert picked(suite, "layer=woodbury", "dataset=shuffled", "seed=1") == {("shuffled", "woodbury", 1)}
    assert len(picked(suite, "layer=woodbury,conv1x1")) == len(picked(suite, "layer=woodbury", "layer=conv1x1")) == 8
    assert {column for column, *_ in picked(suite, "dataset=digits")} == {"digits"}  # labels precede names of data


def test_a_runtime_trial_is_picked_without_the_other_layers():
    made, trials = packaged("quickstart", only=["layer=butterfly,emerging", "dataset=digits"])
    assert [trial.kind for trial in trials] == ["density", "density", "runtime"]
    assert trials[2].rows == ("emerging", "butterfly"), "only selected layers are timed"
    assert set(trials[:2]) < set(made.trials) and len(made.trials) == 18


def test_a_limited_plan_has_only_what_its_trials_have(suite):
    made, trials = settle(suite, "quick", "cpu", only=["layer=woodbury", "dataset=shuffled", "seed=1"]).plan()
    limited = made.limited(trials)
    assert (limited.rows, limited.columns, limited.seeds) == (("woodbury",), ("shuffled",), (1,))
    assert limited.trials == trials and made.limited(made.trials) == made


def test_only_accepts_the_name_of_a_labelled_data_set(read):
    suite = read(SUITE.replace("      digits:\n", "      plain:\n        data: digits\n", 1))
    assert {column for column, *_ in picked(suite, "dataset=digits")} == {"plain", "shuffled"}
    assert {column for column, *_ in picked(suite, "dataset=plain")} == {"plain"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layer=butterfly", "nothing in this profile has it; known: conv1x1, woodbury"),
        ("dataset=shufled", "did you mean shuffled?"),
        ("seed=7", "known: 0, 1"),
        ("layers=woodbury", "unknown key 'layers'; did you mean layer?"),
        ("woodbury", "not of the form key=value"),
        ("layer=", "not of the form key=value"),
    ],
)
def test_an_only_that_picks_nothing_is_refused(suite, text, words):
    with pytest.raises(UserError, match=words):
        picked(suite, text)


def test_equal_settings_have_equal_ids(suite, read):
    made = plan(suite)
    assert len(set(ids(made))) == 8
    same = read(  # the same settings, written differently
        SUITE.replace("{rank_channels: 1, rank_space: 1}", "{rank_space: 1, rank_channels: 1}")
        .replace("learning_rate: 1.0", "learning_rate: 1")
        .replace("seeds: 2", "seeds: [0, 1]")
        .replace("title: Tiny", "title: Another title")
    )
    assert ids(plan(same)) == ids(made)


def test_a_changed_setting_changes_only_the_ids_of_its_trials(suite):
    before, after = plan(suite), plan(suite, settings=["layers.woodbury.options.rank_space=9"])
    changed = {trial.layer.row for trial in before.trials if trial.id not in ids(after)}
    assert changed == {"woodbury"} and len(set(ids(before)) & set(ids(after))) == 4
    after = plan(suite, settings=["datasets.shuffled.training.steps=9"])
    assert {trial.data.label for trial in after.trials if trial.id not in ids(before)} == {"shuffled"}
    assert set(ids(before)) < set(ids(plan(suite, seeds=3)))


def test_a_plan_is_read_back_unchanged(suite, tmp_path):
    for made in (plan(suite), packaged("parameters", "quick").plan):
        made.save(tmp_path)
        again = Plan.load(tmp_path)
        assert again == made and ids(again) == ids(made)
    json.loads((tmp_path / "plan.json").read_text())


def test_device_auto_falls_back_to_the_cpu_and_cuda_does_not(suite, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert settle(suite, "smoke", "auto").plan()[0].device == "cpu"
    with pytest.raises(UserError, match="no CUDA device"):
        settle(suite, "smoke", "cuda").plan()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert {trial.device for trial in settle(suite, "smoke", "auto").plan()[0].trials} == {"cuda"}


def test_a_star_stands_for_all_layers_that_are_not_listed(read):
    text = SUITE.replace("conv1x1: {}", 'mixer: {layer: conv1x1}\n  "*": {}')
    made = plan(read(f"{text}unsupported: true\n"), "smoke")  # a layer may refuse the digits' shape
    registered = {name for name, cls in LAYERS.items() if cls.__module__.startswith("layers.")}
    assert set(made.rows) == registered - {"conv1x1"} | {"mixer"}


@pytest.mark.parametrize("name", ["layers", "layers_runtime"])
def test_a_suite_of_all_layers_has_every_registered_one(name):
    made = packaged(name).plan
    timed = {ref.layer for trial in made.trials if trial.kind == "runtime" for ref in trial.layers}
    assert timed == {name for name, cls in LAYERS.items() if cls.__module__.startswith("layers.")}


def test_a_third_party_layer_is_added_as_a_row(suite, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("from layers.conv1x1 import Conv1x1\n\n\nclass Mine(Conv1x1):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    made = plan(suite, layers=["mine.py:Mine"], settings=["layers.Mine.options.parameterisation=dense"])
    assert made.rows == ("conv1x1", "woodbury", "Mine")
    extra = trial(made, "digits", "Mine").layer
    assert extra.layer == "mine.py:Mine" and dict(extra.options) == {"parameterisation": "dense"}
    with pytest.raises(SuiteError, match="no such file"):
        plan(suite, layers=["absent.py:Mine"])
    with pytest.raises(SuiteError, match="has a row 'Mine' already"):
        plan(suite, layers=["mine.py:Mine", "./mine.py:Mine"])


def test_quickstart_times_its_layers_last():
    made = packaged("quickstart").plan
    kinds = [type(trial) for trial in made.trials]
    assert kinds == [DensityTrial] * 15 + [RuntimeTrial] * 3
    timed = made.trials[-3:]
    assert [trial.sweep for trial in timed] == list(made.columns) == ["digits", "permuted-digits", "waveforms"]
    assert timed[0].shape == (4, 4, 4) and len(timed[0].shape) == 3 and len(timed[2].shape) == 2
    assert [ref.row for ref in timed[0].layers] == list(made.rows)
    assert timed[0].operations == ("forward", "inverse") and timed[0].batch == 4 and timed[0].timing.rounds == 3


def test_parameters_are_counted_at_every_width():
    made, trials = packaged("parameters", "quick", only=["dataset=mimic"])
    assert all(isinstance(trial, ParametersTrial) and trial.shape == (2, 1024) for trial in trials)
    assert [trial.flow.width for trial in trials] == [16] * 5 + [64] * 5
    assert made.published.values["butterfly"]["mimic"] == 15280 and made.published.width("butterfly", "mimic") == 16
    assert made.published.width("butterfly", "cifar10") == 512 and made.seeds == ()


def test_widths_of_a_data_set_take_precedence_over_those_of_the_profile(read):
    text = """\
suite: counts
kind: parameters
title: Counts
layers: {conv1x1: {}}
profiles:
  quick:
    widths: [8]
    datasets: {own: {shape: [2, 8], widths: [3, 4]}, plain: {shape: [2, 8]}}
"""

    def widths(*settings):
        return [(trial.label, trial.flow.width) for trial in plan(read(text), settings=settings).trials]

    assert widths() == [("own", 3), ("own", 4), ("plain", 8)]
    assert widths("widths=[5]") == [("own", 5), ("plain", 5)]
    assert widths("datasets.own.widths=[6]", "widths=[5]") == [("own", 6), ("plain", 5)]
    text = text.replace("    widths: [8]\n", "")
    with pytest.raises(SuiteError, match=r"profiles\.quick has no widths"):
        widths()


def test_a_sweep_is_one_trial_per_point():
    made = packaged("runtime", settings=["timing.rounds=7"]).plan
    assert [(trial.sweep, trial.shape, trial.batch) for trial in made.trials] == [
        ("spatial", (3, 4, 4), 2),
        ("spatial", (3, 8, 8), 2),
        ("batch", (3, 8, 8), 1),
        ("batch", (3, 8, 8), 2),
        ("channels", (2, 8, 8), 2),
        ("channels", (4, 8, 8), 2),
    ]
    assert {t.timing.rounds for t in made.trials} == {7} and {t.timing.warmup for t in made.trials} == {1}
    assert made.unsupported
    changed = packaged("runtime", settings=["sweeps.spatial.batch=7"]).plan
    assert {trial.batch for trial in changed.trials if trial.sweep == "spatial"} == {7}
    with pytest.raises(SuiteError, match=r"profiles\.smoke has no sweep 'spatil'; did you mean spatial\?"):
        packaged("runtime", settings=["sweeps.spatil.batch=7"])


def test_a_profile_names_the_rows_it_trains(read):
    suite = read(SUITE.replace("    seeds: 2\n", "    seeds: 2\n    rows: [woodbury]\n"))
    assert plan(suite).rows == ("woodbury",) and {trial.layer.row for trial in plan(suite).trials} == {"woodbury"}
    assert plan(suite, "smoke").rows == ("conv1x1", "woodbury")
    assert plan(suite, settings=["rows=[woodbury, conv1x1]"]).rows == ("conv1x1", "woodbury"), "order of the suite"
    assert plan(suite, layers=["layers.periodic:Periodic"]).rows == ("woodbury", "Periodic"), "--layer adds to them"
    with pytest.raises(UserError, match=r"conv1x1.*woodbury"):
        picked(suite, "layer=conv1x1")
    with pytest.raises(SuiteError, match=r"--set rows=\[conv1\]: rows: no row 'conv1' in the suite; .*conv1x1"):
        plan(suite, settings=["rows=[conv1]"])
    with pytest.raises(SuiteError, match=r"tiny.yaml:14:11: rows: no row 'woodbery' in .*; did you mean woodbury"):
        read(SUITE.replace("    seeds: 2\n", "    seeds: 2\n    rows: [woodbery]\n"))


def test_points_are_measured_in_several_processes_one_after_the_other():
    made = packaged("runtime", settings=["timing.processes=2"]).plan
    assert [trial.process for trial in made.trials] == [0] * 6 + [1] * 6 and len({*ids(made)}) == 12
    assert packaged("runtime").plan.trials == made.trials[:6], "the first process keeps its ids"


CONTRADICTIONS = {
    "an id twice": (lambda plan: plan.model_copy(update={"trials": plan.trials * 2}), "two of one id"),
    "rows": (lambda plan: plan.model_copy(update={"rows": plan.rows[:1]}), "its layer or its data set is not in"),
    "columns": (lambda plan: plan.model_copy(update={"columns": plan.columns[:1]}), "its data set is not in the plan"),
    "no trials": (lambda plan: plan.model_copy(update={"trials": ()}), "it has no trials"),
}


def test_a_plan_whose_parts_contradict_each_other_is_one_message(tmp_path, density_run, case):
    plan = density_run[0]
    plan = plan.model_copy(update={"trials": tuple(trial for trial in plan.trials if trial.kind == "density")})
    with pytest.raises(UserError, match=r"no plan\.json"):
        Plan.load(tmp_path)
    plan.save(tmp_path)
    assert Plan.load(tmp_path) == plan
    for name, (change, words) in CONTRADICTIONS.items():
        with case(contradiction=name):
            (tmp_path / "plan.json").write_text(change(plan).model_dump_json(indent=1))
            with pytest.raises(UserError, match=rf"not a readable plan \(.*{words}.*\); run the suite") as caught:
                Plan.load(tmp_path)
            assert "\n" not in str(caught.value) and str(caught.value).isprintable()


def test_a_plan_with_a_part_of_a_tuning_is_one_message(tmp_path, density_run):
    plan = density_run[0]
    final = [trial for trial in plan.trials if trial.kind == "density"]
    candidates = dict.fromkeys(early for trial in final for early in trial.prerequisites({}))
    plan.model_copy(update={"trials": (*candidates, *final)}).save(tmp_path)
    assert len(Plan.load(tmp_path).trials) == len(candidates) + len(final)
    plan.model_copy(update={"trials": (*list(candidates)[1:], *final)}).save(tmp_path)
    with pytest.raises(UserError, match="on which it depends is not in the plan"):
        Plan.load(tmp_path)


def test_sections_are_named_as_files(tmp_path, parameters_run):
    part, _ = parameters_run
    about = {"claim": "c", "where": "w", "test": "t", "judge": "parameters"}
    section = Section(name="one", head=part.model_copy(update={"trials": ()}), **about)
    whole = part.model_copy(update={"suite": "whole", "kind": "claims", "sections": (section,)})
    whole.save(tmp_path)
    assert Plan.load(tmp_path) == whole
    whole.model_copy(update={"sections": (section.model_copy(update={"name": "../x"}),)}).save(tmp_path)
    with pytest.raises(UserError, match="is no name of a file"):
        Plan.load(tmp_path)


PLACES = {
    "flow: {levels: 1, steps: 1, width: 1}\n": ("flow: {levels: 1, steps: 0, width: 1}\n", "flow.steps", 4, 26),
    "flow: {width: 4}": ("flow: {width: 0}", "layers.woodbury.flow.width", 8, 72),
    "flow: {width: 2, steps: 2}": ("flow: {width: 2, steps: 0}", "profiles.quick.flow.steps", 15, 29),
    "flow: {width: 5}": ("flow: {width: 0}", "profiles.quick.layers.woodbury.flow.width", 18, 61),
    "flow: {width: 3, steps: 3}": ("flow: {width: 0, steps: 3}", "profiles.quick.datasets.digits.flow.width", 21, 23),
    "{rank_space: 6}": ("{rank_space: zero}", "woodbury: option rank_space: 'zero'", 23, 51),
}


def test_a_fault_in_any_of_the_places_of_a_setting_is_named_with_its_line(read, tmp_path, case):
    for old, (new, words, line, column) in PLACES.items():
        with case(new=new):
            assert SUITE.count(old) == 1
            with pytest.raises(SuiteError) as caught:
                read(SUITE.replace(old, new))
            [message] = str(caught.value).splitlines()
            assert message.startswith(f"{tmp_path / 'tiny.yaml'}:{line}:{column}: {words}"), message
