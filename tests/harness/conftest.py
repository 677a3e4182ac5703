"""Artificial plans and records for the tests of reports."""

import io
import json
import os
import sys
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
from toys import ROWS

from harness.core.records import blank_record, write_arrays, write_record
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.kinds.density.trial import DensityTrial, Tuning, as_text
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.plan import Plan
from harness.planning.suite_model import Published
from harness.reporting.tables import rendering
from harness.timing.settings import TimingSettings

MADE_UP = {"suite": "made_up", "profile": "quick"}
HOSTILE = "<script>alert(1)</script>"
COLUMNS = {"digits": "bits_per_dim", "waveforms": "nats_per_dim"}
SEEDS = (0, 1, 2)
CHOICE = ("candidate", "candidates", "chosen")
RATES = (0.001, 0.01, 0.003, 0.03)  # of the candidates, the second of which is chosen
TUNING = Tuning(seed=100, candidates=tuple((("training.learning_rate", rate),) for rate in RATES))


def layer(row):
    return LayerRef(row=row, layer="conv1x1" if row == ROWS[0] else "woodbury")


def made_up(kind, title, columns, trials, question="", **more):
    """Return a plan of all rows."""
    about = {"kind": kind, "title": title, "question": question, "device": "cpu", "rows": ROWS}
    return Plan(**MADE_UP, **about, columns=tuple(columns), trials=tuple(trials), **more)


def runtime_trial(sweep, shape, batch, operations):
    layers, timing = tuple(map(layer, ROWS)), TimingSettings(rounds=5)
    point = {"sweep": sweep, "shape": shape, "batch": batch}
    return RuntimeTrial(**MADE_UP, **point, layers=layers, operations=operations, timing=timing)


def timed(trial):
    """Return a record in which layer i takes (i + 1) ms per sequence, and the last layer refuses one shape."""
    record = blank_record(trial, "ok", None)
    common = {"shape": "x".join(map(str, trial.shape)), "batch": trial.batch, "sweep": trial.sweep}
    for number, row in enumerate(ROWS):
        for operation in trial.operations:
            line = {"layer": row, "operation": operation, "status": "ok", **common}
            if number == 2 and trial.shape[-1] == 8:
                line |= {"status": "unsupported", "reason": "side 8 is even"}
            else:
                time = (number + 1) * trial.batch * trial.shape[-1] / 64
                line |= {"median_ms": time, "iqr_ms": 0.01, "copy_ms": time / 100 / (number + 1), "peak_bytes": 4096}
                line |= {"drift": 0.0, "cpu_share": 1.0}
                line |= {"inverse_error": 1e-6} if operation == "inverse" else {}
            record.rows.append(line)
    return record


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Tables are whole, whatever terminal the tests run in."""
    monkeypatch.setattr(rendering, "terminal_width", lambda: rendering.WHOLE)


@pytest.fixture(scope="session")
def check_text():
    """Return a function that compares a text with a file in reporting/texts/.

    With UPDATE_TEXTS=1 in the environment it writes the file anew; the changes are then read in their diff.
    """

    def check(name, *parts):
        text = "\n\n".join(parts)
        file = Path(__file__).parent / "reporting" / "texts" / f"{name}.md"
        if os.environ.get("UPDATE_TEXTS"):
            file.write_text(text.rstrip("\n") + "\n")
        assert text.splitlines() == file.read_text().splitlines()

    return check


@pytest.fixture
def density_run():
    """Return (plan, records): two data sets, three tuned layers, three seeds, and the layers' times."""
    flow, training = FlowSettings(levels=2, steps=2, width=8), TrainingSettings(steps=40, batch_size=16)
    common = MADE_UP | {"flow": flow, "training": training, "tuning": TUNING}
    trials = [
        DensityTrial(**common, data=DataRef(label=column, name=column), layer=layer(row), seed=seed)
        for seed in SEEDS
        for column in COLUMNS
        for row in ROWS
    ]
    trials += [
        runtime_trial("digits", (4, 4, 4), 8, ("forward", "inverse")),
        runtime_trial("waveforms", (4, 32), 8, ("forward", "inverse")),
    ]
    values = {"MAF": {"digits": 4.31}, "conv1x1": {"digits": 3.4}}
    published = Published(source="A Paper (2022), table 1", measure="bits_per_dim", values=values)
    plan = made_up("density", "Layers made up", COLUMNS, trials, "Which?", seeds=SEEDS, published=published)
    return plan, [trained(trial) if isinstance(trial, DensityTrial) else timed(trial) for trial in trials]


@pytest.fixture
def many_seeds(density_run):
    """Return a function that makes the density run with more seeds and noise; two layers are equal on waveforms."""
    plan, _ = density_run
    first = [trial for trial in plan.trials if getattr(trial, "seed", None) == 0]

    def make(seeds):
        # `model_copy` would keep the id.
        fields = [trial.model_dump() for trial in first]
        trials = [DensityTrial.model_validate(row | {"seed": seed}) for seed in range(seeds) for row in fields]
        records = [trained(trial) for trial in trials]
        for record in records:
            seed, number = record.trial["seed"], ROWS.index(record.trial["layer"]["row"])
            wobble = (-1) ** (seed // (number + 1)) / 100
            record.rows[0]["bits_per_dim"] += wobble
            record.rows[0]["nats_per_dim"] = -2.0 + (number == 0) + wobble
        changes = {"trials": tuple(trials), "seeds": tuple(range(seeds))}
        return plan.model_copy(update=changes), records

    return make


@pytest.fixture
def replanned():
    """Return a function that changes the trials of a run, their ids and their records.

    `change(trial)` gives the changed settings by dotted path, or None for a trial to be left out; further arguments
    are changes of the plan.
    """

    def changed(run, change, **of_plan):
        plan, records = run
        by_id = {record.id: record for record in records}
        trials, kept = [], []
        for trial in plan.trials:
            changes, record = change(trial), by_id.get(trial.id)
            if changes is None:
                continue
            fields = trial.model_dump()
            for path, value in changes.items():
                *parents, name = path.split(".")
                reduce(getitem, parents, fields)[name] = value
            made = type(trial).model_validate(fields)
            trials.append(made)
            if record is not None:
                kept.append(settled(replace(record, id=made.id, trial=made.model_dump(mode="json")), made))
        return plan.model_copy(update={"trials": tuple(trials), **of_plan}), kept

    return changed


@pytest.fixture
def one_seed(replanned):
    """Return a function that leaves the first seed of a run, and its other trials."""
    return lambda run: replanned(run, lambda trial: {} if getattr(trial, "seed", 0) == 0 else None, seeds=(0,))


def settled(record, trial):
    """Return the record of a density trial with its settings and the choice of its tuning; others unchanged."""
    if trial.kind != "density" or not record.rows:
        return record
    tuned = trial.tuning is not None
    changes = dict(trial.tuning.candidates[1]) if tuned else {}
    chosen = {"candidate": 1, "candidates": len(RATES), "chosen": as_text(changes)} if tuned else {}
    used = trial.settled(changes)
    about = {"learning_rate": used.training.learning_rate, "options": as_text(dict(used.layer.options)), **chosen}
    row = {name: value for name, value in record.rows[0].items() if tuned or name not in CHOICE}
    return replace(record, rows=[row | about])


def trained(trial):
    """Return a record with likelihood 2 + layer number + seed / 100, and its curve."""
    record = blank_record(trial, "ok", None)
    number = ROWS.index(trial.layer.row)
    value = 2.0 + number + trial.seed / 100
    parameters = 1000 + 100 * number + len(trial.data.label)
    row = {"unit": COLUMNS[trial.data.label], "bits_per_dim": value, "nats_per_dim": -value, "steps": 40}
    row |= {"parameters": parameters, "masked_free": parameters - 6 * number, "train_seconds": 0.1 + 0.2}
    record.rows = [row | {"audit": "passed", "audit_reason": None, "below_floor": False, "floor": 0.0}]
    record.audit = {"verdict": "passed"}
    steps = [10, 20, 30, 40]
    curves = {name: [value + above / step for step in steps] for name, above in (("train", 40), ("validation", 44))}
    record.curves = {"step": steps} | curves
    return settled(record, trial)


@pytest.fixture
def runtime_run():
    """Return (plan, records): a sweep over the side of images and one over the batch size."""
    operations = ("forward", "forward_backward", "inverse")
    trials = [runtime_trial("spatial", (3, side, side), 4, operations) for side in (4, 8, 16)]
    trials += [runtime_trial("batch", (3, 4, 4), batch, operations) for batch in (1, 2)]
    plan = made_up("runtime", "Times made up", ("spatial", "batch"), trials)
    return plan, [timed(trial) for trial in trials]


@pytest.fixture
def parameters_run():
    """Return (plan, records) with two widths; the first layer's published count is reproduced, the second's is not."""
    common = MADE_UP | {"label": "mimic", "shape": (2, 64)}
    trials = [
        ParametersTrial(**common, layer=layer(row), flow=FlowSettings(levels=2, steps=2, width=width))
        for width in (16, 64)
        for row in ROWS
    ]
    values = {ROWS[0]: {"width": 64, "mimic": 6400}, ROWS[1]: {"width": 16, "mimic": 15280}}
    published = Published(source="A Paper (2022)", measure="parameters", values=values)
    plan = made_up("parameters", "Counts made up", ("mimic",), trials, published=published)
    records = [blank_record(trial, "ok", None) for trial in trials]
    for trial, record in zip(trials, records, strict=True):
        record.rows = [{"parameters": 100 * trial.flow.width, "masked_free": 90 * trial.flow.width}]
    return plan, records


class Asked(list):
    """The trials that were requested of `run_trials`, the arguments of its last call, and the outcome of each."""

    until = 0  # number of trials after which the run is interrupted
    status = "ok"


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Replace trials by immediate records, in an empty working directory; return the trials that were requested."""

    def run_trials(trials, run_options, slots, reporter, *, provenance):
        asked.run_options, asked.reporter = run_options, reporter
        for trial in trials:
            asked.append(trial)
            record = blank_record(trial, asked.status, None if asked.status == "ok" else "why")
            measures = {"bits_per_dim": 2.0, "parameters": 3, "masked_free": 3, "audit": "passed"}
            record.rows = [{"unit": "bits_per_dim"} | measures] if asked.status == "ok" else []
            record.environment = provenance(trial)
            record.seconds = 90.0
            write_record(run_options.out / "records", record)
            if len(asked) == asked.until:
                raise KeyboardInterrupt

    asked = Asked()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.execution.local.supervisor.run_trials", run_trials)
    monkeypatch.setattr("harness.execution.local.process.start_trial_server", lambda kinds, datasets, kernels: None)
    return asked


@pytest.fixture
def no_figures(monkeypatch):
    """Skip the figures of reports, which take most of the time and have their own tests."""
    monkeypatch.setattr("harness.reporting.report.drawn", lambda parts, form=None, progress=None: [[] for _ in parts])


@pytest.fixture
def write_run(tmp_path):
    """Return a function that writes a run as OUT/<suite>, with samples, and returns the folder."""

    def write(plan, records):
        folder = tmp_path / plan.suite
        plan.save(folder)
        for record in records:
            if record.trial["kind"] == "density":
                shape = (1, 8, 8) if record.trial["data"]["label"] == "digits" else (2, 32)
                values = np.random.default_rng(0).integers(0, 17, (8, *shape))
                content = io.BytesIO()
                np.savez_compressed(content, data=values, samples=values)
                record.arrays = write_arrays(folder / "records", record.id, content.getvalue())
            write_record(folder / "records", record)
        return folder

    return write


@pytest.fixture
def hostile_run(density_run):
    """Return (plan, records) of a density suite with texts that are HTML and scripts."""
    plan, records = density_run
    text = plan.model_dump_json().replace("<script>", HOSTILE)
    question = 'Which? "><img src=http://127.0.0.1:9/a.png onerror=alert(2)>'
    texts = {"title": "</title><script>alert(3)</script>", "question": question}
    plan = Plan.model_validate_json(text).model_copy(update=texts)
    renamed = []
    for trial, record in zip(plan.trials, records, strict=True):
        rows = json.loads(json.dumps(record.rows).replace("<script>", HOSTILE))
        renamed.append(replace(record, id=trial.id, trial=trial.model_dump(mode="json"), rows=rows))
    renamed[2].status, renamed[2].reason, renamed[2].rows = "error", f"ValueError: {HOSTILE}", []
    return plan, renamed


@pytest.fixture
def write_segment():
    """Return a function that writes a WFDB record of one segment from integer signals by name."""

    def write(folder, name, signals, fmt="16", gains=None, baselines=None, rate=125, per_frame=None):
        import wfdb

        folder.mkdir(parents=True, exist_ok=True)
        values = [np.asarray(values, dtype=np.int64) for values in signals.values()]
        samples = {"e_d_signal": values, "samps_per_frame": per_frame}
        if per_frame is None:
            samples = {"d_signal": np.stack(values, axis=1)}
        wfdb.wrsamp(
            name,
            fs=rate,
            units=["mmHg" if signal == "ABP" else "NU" for signal in signals],
            sig_name=list(signals),
            fmt=[fmt] * len(signals),
            adc_gain=[float((gains or {}).get(signal, 200)) for signal in signals],
            baseline=[(baselines or {}).get(signal, 0) for signal in signals],
            write_dir=str(folder),
            **samples,
        )
        return folder / f"{name}.hea"

    return write


@pytest.fixture
def write_record_of_segments():
    """Return a function that writes the master header and layout of a record of segments (name, frames)."""

    def write(folder, name, segments, channels, rate=125):
        total = sum(frames for _, frames in segments)
        lines = [f"{name}/{len(segments) + 1} {len(channels)} {rate} {total}", f"{name}_layout 0"]
        lines += [f"{segment} {frames}" for segment, frames in segments]
        (folder / f"{name}.hea").write_text("\n".join(lines) + "\n")
        lines = [f"{name}_layout {len(channels)} {rate} 0"]
        lines += [f"~ 0 200/mV 12 0 -2048 0 0 {channel}" for channel in channels]
        (folder / f"{name}_layout.hea").write_text("\n".join(lines) + "\n")
        return folder / f"{name}.hea"

    return write


@pytest.fixture(autouse=True)
def no_modules_beside():
    """Forget the modules beside third-party files: a process has one of each name, and tests have helpers alike."""
    path, loaded = list(sys.path), set(sys.modules)
    yield
    folders = tuple(f"{folder}/" for folder in sys.path if folder not in path)
    sys.path[:] = path
    for name in sys.modules.keys() - loaded:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folders):
            del sys.modules[name]
