"""Random damage to plans, records, arrays, archives, weights and checkpoints is a message that names the file."""

import hashlib
import io
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.archive import FILE, archive_bytes, read_records
from harness.core.checkpoint_files import CheckpointHeader, checkpoint_folder, newest_header
from harness.core.errors import UserError
from harness.core.files import checked_name
from harness.core.records import (
    Record,
    blank_record,
    check_measures,
    read_arrays,
    read_record,
    write_arrays,
    write_record,
)
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.trial import TRIALS
from harness.kinds.density.figures import samples
from harness.kinds.density.result import CANDIDATE_MEASURES, DensityResult
from harness.kinds.density.trial import CandidateTrial, DensityTrial
from harness.kinds.density.weights import load_flow
from harness.kinds.examination.trial import ConformanceTrial, ExaminationTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.pipeline.models import build_flow
from harness.planning.plan import Plan
from harness.reporting.figures.figure_style import style
from harness.reporting.frame import Results, csv_bytes
from harness.reporting.page.page_facts import environment_rows, trial_rows
from harness.reporting.report import Report

TRIAL = DensityTrial(
    suite="damaged",
    profile="quick",
    data=DataRef(label="digits", name="digits"),
    layer=LayerRef(row="conv1x1", layer="conv1x1"),
    flow=FlowSettings(levels=1, steps=1, width=4),
    training=TrainingSettings(steps=4, evaluate_every=2),
    seed=0,
)
PLAN = Plan(
    suite="damaged",
    kind="density",
    title="Damaged",
    question="What is left?",
    profile="quick",
    device="cpu",
    rows=("conv1x1",),
    columns=("digits",),
    seeds=(0,),
    trials=(TRIAL,),
)


def good_record():
    record = blank_record(TRIAL, "ok", None)
    result = DensityResult(
        unit="bits_per_dim",
        parameters=9,
        masked_free=9,
        learning_rate=TRIAL.training.learning_rate,
        options="{}",
        bits_per_dim=2.5,
        nats_per_dim=1.7,
        validation=2.4,
        audit="passed",
        logdet_error=1e-7,
        below_floor=False,
        steps=4,
        best_step=4,
        stopped_early=False,
        train_seconds=0.5,
    )
    record.rows = [result.row()]
    record.curves = {"step": [2, 4], "train": [2.0, 1.9], "validation": [2.5, 2.4]}
    record.audit = {"verdict": "passed", "reasons": [], "logdet_error": 1e-7, "not_audited": {}, "linear_layers": 1}
    record.environment = {
        "versions": {"python": "3.11", "torch": "2.14"},
        "cpu": "any",
        "cores": 2,
        "git": {"commit": "c" * 40, "dirty": False},
        "kernels": {"build": "b"},
        "sources": {"flows/glow.py": "aaa"},
    }
    record.notes = {"data": "digits"}
    record.seconds, record.started = 1.5, "2026-01-01T00:00:00+00:00"
    return record


def places(value, path=()):
    """Yield the path of every value within a value of JSON."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


GOOD = json.loads(json.dumps(vars(good_record())))
NUMBERS = st.sampled_from([0, -1, 3, 2**63, 10**400, 1e101, -1e300, math.nan, math.inf, 0.5, 1e100, 2**62])
TEXTS = st.sampled_from(["", "ok", "abc", "a\ud800b", "\x1b[31m", "=1+1", "{{", "9" * 500, "failed"])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS, max_size=2))
REMOVED = object()
TRUSTED = ("audit", "environment")  # mappings of a record that are read as the program wrote them
few = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@st.composite
def changed(draw, contents):
    """Return the JSON of a content in which one value or two are others, or removed."""
    content = json.loads(json.dumps(draw(contents)))
    for _ in range(draw(st.integers(1, 2))):
        checked = [path for path in places(content) if path and path[0] not in TRUSTED]
        *front, last = draw(st.sampled_from(checked))
        inner = content
        for key in front:
            inner = inner[key]
        value = draw(st.one_of(VALUES, st.just(REMOVED)))
        if value is REMOVED:
            del inner[last]
        else:
            inner[last] = value
    return json.dumps(content).encode()


@st.composite
def damaged_bytes(draw, content):
    """Return the content with one bit changed, or cut."""
    place = draw(st.integers(0, len(content) - 1))
    if draw(st.booleans()):
        return content[:place]
    return content[:place] + bytes([content[place] ^ 1 << draw(st.integers(0, 7))]) + content[place + 1 :]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run with one record."""
    folder = tmp_path_factory.mktemp("run")
    PLAN.save(folder)
    write_record(folder / "records", good_record())
    return folder


@settings(few, max_examples=100)
@given(
    changed(st.just(GOOD))
    | damaged_bytes(json.dumps(GOOD).encode())
    | st.recursive(VALUES, lambda inner: st.lists(inner, max_size=2)).map(json.dumps).map(str.encode)
    | st.just(b"[" * 5000)
)
def test_a_damaged_record_is_reported_or_named(run, content):
    """Everything of its report is made but figures."""
    path = run / "records" / f"{TRIAL.id}.json"
    path.write_bytes(content)
    try:
        read_record(path, TRIAL)
    except UserError as error:
        assert str(error).startswith(f"{path}: not a readable record (") and str(error).isprintable()
        assert len(str(error)) < len(str(path)) + 600
        return
    results = Results.read(run)
    assert [*Report(results).plain_paragraphs(), trial_rows(results), csv_bytes(results.table)]
    assert environment_rows(list(results.records.values()))


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "-2e100", str(10**101)])
@pytest.mark.parametrize(
    "changes",
    [
        {"curves": {"train": ["NUMBER"]}},
        {"rows": [GOOD["rows"][0] | {"bits_per_dim": "NUMBER"}]},
        {"seconds": "NUMBER"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_number_beyond_the_bounds_is_named(tmp_path, changes, number):
    path = tmp_path / f"{TRIAL.id}.json"
    path.write_text(json.dumps(GOOD | changes).replace('"NUMBER"', number))
    with pytest.raises(UserError, match="not a readable record"):
        read_record(path)


@few
@given(changed(st.just(json.loads(PLAN.model_dump_json()))) | damaged_bytes(PLAN.model_dump_json().encode()))
def test_a_damaged_plan_is_reported_or_named(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("plan")
    (folder / "plan.json").write_bytes(content)
    archive = folder / "in.zip"
    archive.write_bytes(archive_bytes(content, [good_record()]))
    try:
        plan = Plan.load(folder)
    except UserError as error:
        assert str(error).startswith(f"{folder / 'plan.json'}: not a readable plan (")
        assert len(str(error)) < len(str(folder)) + 700 and str(error).isprintable()
        with pytest.raises(UserError, match="not a readable plan"):
            Plan.load(archive)
        return
    assert Plan.load(archive) == plan and checked_name(plan.suite)
    report = Report(Results.read(archive))
    assert [*report.plain_paragraphs(), *report.markdown_paragraphs()]


ARRAYS = {"data": np.arange(128, dtype="u1").reshape(2, 1, 8, 8), "samples": np.zeros((2, 1, 8, 8), "f4")}


def stored_arrays(arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


@st.composite
def any_arrays(draw):
    """Return arrays as a trial stores them, or of other names, shapes and types."""
    arrays = dict(ARRAYS)
    for name in draw(st.lists(st.sampled_from(["data", "samples", "other"]), max_size=3)):
        shape = draw(st.lists(st.integers(0, 3), max_size=5) | st.just([2, 1, 8, 8]))
        arrays[name] = np.full(shape, draw(st.sampled_from([1, 0.5, math.nan, True])))
    return arrays


@settings(few, max_examples=60)  # figures take most of the time
@given(any_arrays().map(stored_arrays) | st.binary(max_size=9))
def test_arrays_of_any_content_are_drawn_or_named(tmp_path_factory, content):
    """Their checksum fits: they are not damaged, but were written so."""
    folder = tmp_path_factory.mktemp("run")
    PLAN.save(folder)
    record = good_record()
    record.arrays = write_arrays(folder / "records", TRIAL.id, content)
    write_record(folder / "records", record)
    try:
        with style():
            made = samples.figures(Results.read(folder))
        assert all(name.endswith("-digits") for name in made)
    except UserError as error:
        assert str(folder / "records" / record.arrays) in str(error) and str(error).isprintable()


def torch_saved(document):
    content = io.BytesIO()
    torch.save(document, content)
    return content.getvalue()


STATE = build_flow((1, 8, 8), TRIAL.layer, TRIAL.flow, TRIAL.seed).state_dict()
WEIGHTS = torch_saved({"trial": TRIAL.id, "shape": (1, 8, 8), "changes": {}, "values": None, "state": dict(STATE)})


OTHER_WEIGHTS = st.fixed_dictionaries(
    {
        "trial": st.just(TRIAL.id) | VALUES,
        "shape": VALUES | st.lists(st.integers(-1, 10**9), max_size=4),
        "changes": st.just({}) | VALUES,
        "values": VALUES,
        "state": VALUES | st.dictionaries(TEXTS, st.builds(torch.zeros, st.lists(st.integers(0, 3), max_size=3))),
    }
)


@few
@given(damaged_bytes(WEIGHTS) | OTHER_WEIGHTS.map(torch_saved))
def test_weights_of_any_content_are_loaded_or_named(tmp_path_factory, content):
    """Their checksum fits: they are not damaged, but were written so."""
    path = tmp_path_factory.mktemp("weights") / "it.pt"
    path.write_bytes(content + hashlib.sha256(content).digest())
    try:
        load_flow(TRIAL, path)
    except UserError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)


@few
@given(damaged_bytes(stored_arrays(ARRAYS)))
def test_every_damage_to_arrays_is_noticed(run, content):
    file = write_arrays(run / "records", TRIAL.id, stored_arrays(ARRAYS))
    record = good_record()
    record.arrays = file
    path = write_record(run / "records", record)
    write_arrays(run / "records", TRIAL.id, b"new")  # before their record is written, a reader finds the old pair
    assert read_arrays(run / "records", file).keys() == ARRAYS.keys() and read_record(path).arrays == file
    (run / "records" / file).write_bytes(content)
    with pytest.raises(UserError, match=f"{file}: damaged arrays \\(its checksum does not fit\\); run the suite again"):
        read_record(path)


@few
@given(damaged_bytes(archive_bytes(PLAN.model_dump_json().encode(), [good_record()])) | st.binary(max_size=40))
def test_a_damaged_archive_is_read_or_named(run, content):
    path = run / FILE
    path.write_bytes(content)
    try:
        stored = read_records(path, PLAN.trials)
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert set(stored.records) | set(stored.damaged) <= {TRIAL.id}
    path.unlink()


ABOUT = {"trial": TRIAL.id, "step": 2, "steps": 4, "seconds": 1.5, "interruptions": 0, "torch": "2.14"}
HEADER = CheckpointHeader(**ABOUT, sources={"flows/glow.py": "aaa"})


@few
@given(st.sampled_from(sorted(vars(HEADER))), VALUES)
def test_the_header_of_a_checkpoint_has_valid_types_or_is_skipped(run, name, value):
    path = checkpoint_folder(run, TRIAL.id) / "000000002.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(vars(HEADER) | {name: value}).encode() + b"\nwhatever follows")
    header = newest_header(run, TRIAL.id)
    assert header is None or isinstance(header.step / max(1, header.steps), float)


IMPOSSIBLE = {
    "Int64 >= 0": (-1, -5, 0.5, 1 << 63),
    "Float64 >= 0": (-1, -1e-9, 1e101),
    "Float64 in [0, 1]": (-0.1, 1.1, 2),
    "string of a status": ("good", "missing", 1),
}


@pytest.mark.parametrize("kind", sorted(TRIALS))
def test_measures_outside_the_bounds_of_their_columns_are_refused(kind):
    columns = TRIALS[kind].columns
    bounded = [name for name, column in columns.items() if column in IMPOSSIBLE]
    assert {"density": 25, "runtime": 12, "parameters": 3, "examination": 8}.get(kind, 3) <= len(bounded)
    for name in bounded:
        check_measures(kind, [{name: None}, {}])
        for value in IMPOSSIBLE[columns[name]]:
            with pytest.raises(ValueError, match=rf"measures: \[1\]\.{name}: .*; the `columns` of trials of kind"):
                check_measures(kind, [{}, {name: value}])


RUNTIME = RuntimeTrial(
    suite="damaged",
    profile="quick",
    sweep="batch",
    shape=(3, 4, 4),
    batch=2,
    layers=(LayerRef(row="conv1x1", layer="conv1x1"), LayerRef(row="scale", layer="scale")),
    operations=("forward",),
)
LAYER = {"suite": "damaged", "profile": "quick", "label": "d", "shape": (2, 4), "layer": TRIAL.layer}
CANDIDATE = {name: getattr(TRIAL, name) for name in ("suite", "profile", "data", "layer", "flow", "training", "seed")}
EXAMINED = {"density": 0.5, "classes": 2, "sizes": "4 + 4", "log10_permutations": -1.0}
ROWS = {
    TRIAL: [GOOD["rows"][0]],
    CandidateTrial(**CANDIDATE, candidate=3): [{name: GOOD["rows"][0][name] for name in CANDIDATE_MEASURES}],
    RUNTIME: [case | {"status": "ok", "median_ms": 1.5} for case in RUNTIME.cases],
    ParametersTrial(**LAYER, flow=TRIAL.flow): [{"parameters": 9, "masked_free": 8}],
    ConformanceTrial(**LAYER): [{"weights": "random", "conforms": True}, {"weights": "trained", "conforms": False}],
    ExaminationTrial(**LAYER, examine="mixing"): [EXAMINED],
}


def record_of(trial, rows):
    record = blank_record(trial, "ok", None)
    record.rows = rows
    record.audit = GOOD["audit"] if "audit" in rows[0] else {}
    return record


@pytest.mark.parametrize("trial", ROWS, ids=lambda trial: trial.kind)
def test_a_row_of_another_trial_is_damage(tmp_path, trial):
    """Every column that identifies a trial: of the columns of its kind, all that no run measures."""
    assert read_record(write_record(tmp_path, record_of(trial, ROWS[trial])), trial).rows == ROWS[trial]
    repeated = [
        row | {name: value for name, value in trial.identity.items() if name in trial.columns} for row in ROWS[trial]
    ]
    assert read_record(write_record(tmp_path, record_of(trial, repeated)), trial).rows == repeated
    others = {"string": "scale", "Int64": 7, "Int64 >= 0": 7}
    for name in trial.identity.keys() & trial.columns.keys():
        rows = [*ROWS[trial][:-1], ROWS[trial][-1] | {name: others[trial.columns[name]]}]
        path = write_record(tmp_path, record_of(trial, rows))
        with pytest.raises(UserError, match=f"a row of {name} .*, in a trial of"):
            read_record(path, trial)
    for name in trial.required:
        path = write_record(tmp_path, record_of(trial, [ROWS[trial][0] | {name: None}, *ROWS[trial][1:]]))
        with pytest.raises(UserError, match=f"a row that is ok, without {name}"):
            read_record(path, trial)


@settings(few, max_examples=100)
@given(st.data())
def test_no_row_counts_for_another_trial(run, data):
    """Whatever a row says, the frame has the identity of its trial."""
    trial = data.draw(st.sampled_from([trial for trial in ROWS if trial.kind != "tuning"]))  # tables have no candidates
    value = st.one_of(SCALARS, st.sampled_from(["scale", "conv1x1", "digits", "forward", "random", 7, 1.5]))
    change = data.draw(st.dictionaries(st.sampled_from(list(trial.columns)), value, min_size=1, max_size=2))
    number = data.draw(st.integers(0, len(ROWS[trial]) - 1))
    rows = [row | (change if place == number else {}) for place, row in enumerate(ROWS[trial])]
    path = run / "records" / f"{trial.id}.json"
    path.write_text(json.dumps(vars(record_of(trial, rows))))
    about = {"rows": trial.rows, "columns": (trial.column,), "trials": (trial,)}
    try:
        record = read_record(path, trial)
    except UserError:
        frame = Results.of(PLAN.model_copy(update=about), [], run, {trial.id: "why"}).frame
        assert set(frame["status"]) == {"damaged"}
    else:
        frame = Results.of(PLAN.model_copy(update=about), [record]).frame
    for name, expected in trial.identity.items():
        assert frame[name].isna().all() if expected is None else set(frame[name]) == {expected}
    assert sorted(map(str, frame["layer"])) == sorted(case.get("layer", trial.rows[0]) for case in trial.cases)


def test_the_record_is_of_the_trial_that_is_asked_for(tmp_path):
    other = DensityTrial.model_validate(TRIAL.model_dump() | {"seed": 1})
    path = write_record(tmp_path, good_record())
    content = json.loads(path.read_text())
    for changes, words in (
        ({"trial": content["trial"] | {"seed": 1}}, "its settings are not those of its trial"),
        ({"rows": content["rows"] * 2}, "two rows of one case"),
        ({"rows": []}, "it is ok, and has no row"),
        ({"rows": [content["rows"][0] | {"masked_free": None}]}, "a row without masked_free"),
        ({"audit": {}, "rows": [content["rows"][0] | {"audit": None}]}, "audit None is not one of passed"),
        ({"rows": [content["rows"][0] | {"audit": "failed"}]}, "audit 'failed' in its row, 'passed' in its audit"),
        ({"rows": [content["rows"][0] | {"bits_per_dim": None}]}, "its audit passed without bits_per_dim"),
        ({"rows": [content["rows"][0] | {"learning_rate": 0.1}]}, "learning_rate 0.1, of settings with 0.001"),
        ({"rows": [content["rows"][0] | {"options": '{"a": 1}'}]}, "options .*, of settings with '{}'"),
        ({"rows": [content["rows"][0] | {"logdet_error": 0.0}]}, "logdet_error 0.0 in its row, 1e-07 in its audit"),
        ({"rows": [content["rows"][0] | {"parameters": 3}]}, "9 of 3 parameters are free"),
        ({"rows": [content["rows"][0] | {"steps": 5}]}, "5 steps, the best of them 4, in a training of 4"),
        ({"rows": [content["rows"][0] | {"steps": 3}]}, "3 steps, the best of them 4, in a training of 4"),
        ({"curves": content["curves"] | {"step": [2, 5]}}, "the steps of its curves do not ascend within a training"),
        ({"curves": content["curves"] | {"step": [4, 2]}}, "the steps of its curves do not ascend within a training"),
        ({"curves": content["curves"] | {"train": [2.0]}}, "curves of different lengths"),
        ({"rows": [content["rows"][0] | {"status": "error"}]}, "its status is ok, those of its rows are error"),
        ({"status": "error"} | {"rows": [content["rows"][0] | {"status": "ok"}]}, "is error, those of its rows are ok"),
        ({"rows": [content["rows"][0] | {"candidate": 0}]}, "candidate 0, chosen None, is none of its tuning"),
        ({"rows": [content["rows"][0] | {"candidates": 1}]}, "1 candidates, of a tuning of 0"),
        ({"rows": [content["rows"][0] | {"chosen": "{{"}]}, "chosen '{{', is none of its tuning"),
    ):
        path.write_text(json.dumps(content | changes))
        with pytest.raises(UserError, match=words):
            read_record(path, TRIAL)
    assert isinstance(read_record(write_record(tmp_path, blank_record(other, "oom", "why")), other), Record)
