"""Reports as they are written: table.md of made-up runs, each compared with a file in texts/."""

from types import SimpleNamespace

import pytest
from toys import FIRST, SECOND, THIRD

from harness.core.records import blank_record
from harness.core.settings import SampleSettings
from harness.reporting.report import ReportedResults


@pytest.fixture
def made(density_run, many_seeds, replanned, one_seed, runtime_run, parameters_run):
    """Return the fixtures of made-up runs by name."""
    runs = {"density": density_run, "runtime": runtime_run, "counts": parameters_run}
    return SimpleNamespace(**runs, seeds=many_seeds, changed=replanned, one=one_seed)


def of(records, row=None, column=None):
    """Return the records of trainings of a layer on a data set."""
    trained = [record for record in records if record.trial["kind"] == "density"]
    trained = [record for record in trained if row in (None, record.trial["layer"]["row"])]
    return [record for record in trained if column in (None, record.trial["data"]["label"])]


def plain(made):
    return made.density


def few_seeds(made):
    return made.seeds(7)


def eight_seeds(made):
    """Eight seeds: bold leaders and tests; the second layer leads on all but two seeds of waveforms."""
    return made.seeds(8)


def failed(made):
    """Trials that failed in each way, and one that has not run."""
    plan, records = made.seeds(8)
    for number, status in enumerate(("diverged", "error", "oom")):
        records[number] = blank_record(plan.trials[number], status, f"reason {number}")
    for record in of(records, THIRD, "waveforms"):
        record.status, record.reason, record.rows = "error", "ValueError: no (flows/glow.py:3)", []
    records[9].rows[0]["nats_per_dim"] = None
    return plan, [record for record in records if record is not records[7]]


def doubtful(made):
    """A failed audit, a value below the floor, an estimate, a cut training, a warning, and events."""
    plan, records = made.density
    for record in of(records):
        mean = record.rows[0][record.rows[0]["unit"]]
        record.rows[0] |= {"median": mean - 0.25, "worst": mean + 5, "test_events": 100}
    records[4].rows[0] |= {"audit": "failed", "audit_reason": "level0/step1: log-det is 1"}
    records[10].rows[0] |= {"below_floor": True}
    records[2].rows[0] |= {"estimate_error": 0.0021}
    records[2].notes["estimates"] = "audited, and so on"
    records[8].rows[0] |= {"worst": None}
    records[8].notes["worst"] = "the value is inf"
    records[9].rows[0] |= {"best_step": 40, "stopped_early": False}
    for record in of(records, column="digits"):
        record.notes |= {"data": "digits", "data warning": "3 of 4 seen", "data remark": "b equals a"}
    return plan, records


def described(made):
    """Data, permutations, augmentation, an oracle, a control, a baseline, and settings of single rows and columns."""

    def change(trial):
        row, digits = trial.layer.row, trial.column == "digits"
        changes = {"layer.oracle": row == THIRD, "layer.keep_mixer": row == SECOND, "training.patience": 5}
        if digits:
            return changes | {"data.permute": 0, "data.augmentation": "crop_flip", "data.dequantise": False}
        return changes | {"data.permute": "per-seed", "flow.width": 64 if row == FIRST else 8}

    plan, records = made.changed(made.seeds(3), change)
    for record in records:
        record.notes = {"data": "digits of scikit-learn", "splits": "1,297 train, 250 validation, 250 test"}
        record.environment = {"cpu": "A Processor"}
        if record.trial["data"]["label"] == "waveforms":
            about = {"steps": "0.0005 NU, 0.05 mmHg", "checksum": "0123456789abcdef" * 4, "floor": "a filter"}
            record.notes = {"data": "PPG", "splits": "9 train, 1 validation, 1 test"} | about
    records[0].notes["layer"] = "cut into parts"
    return plan, records


def published(made):
    """The protocol of the paper, with a baseline, and the mean of both data sets, one trial of which failed."""
    plan, records = made.changed(made.density, lambda trial: {})
    for record in of(records):
        record.rows[0] |= {"unit": "bits_per_dim"}
    records[3] = blank_record(plan.trials[3], "diverged", "loss is nan at step 3")
    values = {FIRST: {"digits": 3.4, "average": 3.5}, "MAF": {"digits": 4.31}}
    numbers = plan.published.model_copy(update={"values": values})
    averages = {"average": ("digits", "waveforms")}
    return plan.model_copy(update={"profile": "paper", "published": numbers, "averages": averages}), records


def one_seed(made):
    """Standard errors over examples in place of intervals."""
    plan, records = made.one(made.density)
    for record in of(records):
        record.rows[0]["standard_error"] = 0.35 if record.trial["layer"]["row"] == FIRST else None
    return plan.model_copy(update={"averages": {"average": ("digits",)}}), records


def untuned(made):
    """No tuning on one data set, and an exempt layer on the other."""
    return made.changed(
        made.seeds(8), lambda trial: {"tuning": None} if trial.column == "waveforms" or trial.layer.row == FIRST else {}
    )


def repeated(made):
    """Repetitions with splits, tunings and permutations of their own; one test event decides on digits."""

    def change(trial):
        drawn = {"data.split": trial.seed, "data.permute": trial.seed, "tuning.repetition": trial.seed}
        return {"repetition": trial.seed, "tuning.seed": 100 + trial.seed} | drawn

    plan, records = made.changed(made.seeds(8), change, seeds=())
    rates = (0.001, 0.01, 0.01, 0.01, 0.01, 0.003, 0.003, 0.03)
    for record in records:
        row, number = record.rows[0], record.trial["repetition"]
        row |= {"test_share": 0.2, "test_events": 11, "worst": row[row["unit"]] + 30 * (record in of(records, THIRD))}
        record.notes |= {"data": "toy", "splits": "8 train", "data warning": f"{number} events overlap"}
        if record.trial["layer"]["row"] == FIRST:
            row["chosen"] = f'{{"training.learning_rate": {rates[number]}}}'
    return plan, records


def sampled(made):
    """FID and its company, of two extractors; samples that were lost, and trials without numbers."""

    def change(trial):
        name = "toy-net" if getattr(trial, "seed", 0) or trial.rows != (FIRST,) else "other-net"
        digits = trial.kind == "density" and trial.column == "digits"
        return {"training.samples": SampleSettings(count=256, extractor=name).model_dump()} if digits else {}

    plan, records = made.changed(made.density, change)
    for record in of(records, column="digits"):
        extractor = record.trial["training"]["samples"]["extractor"]
        record.rows[0] |= {"fid": 10.0 + record.trial["seed"], "kid": 0.01, "kid_sd": 0.002, "precision": 0.5}
        record.rows[0] |= {"recall": 0.25, "samples": 250, "extractor": extractor}
        record.notes["fidelity"] = f"samples and 250 of 250 test images; features of {extractor}"
    records[1].notes["fidelity_lost"] = "3 of 250 samples are not finite"
    lost = of(records, THIRD, "digits")[0]
    lost.rows[0] |= dict.fromkeys(("fid", "kid", "kid_sd", "precision", "recall", "samples"))
    lost.notes["fidelity"] = "no FID, KID, precision and recall: Inception's weights are missing"
    return plan, records


def unstable_times(made):
    """Times that are unstable or ended early, of kernels and of plain PyTorch."""
    plan, records = made.runtime
    for record in records:
        record.environment = {"backend": "cpp", "kernels": {"build": "b"}}
        for row in record.rows:
            row["backend"] = "cpp" if row["layer"] == FIRST else "torch"
    records[0].rows[0] |= {"iqr_ms": 0.2, "rounds": 4, "remark": "cut into parts"}
    records[2].rows[0].update(drift=-0.2, cpu_share=0.5, median_ms=4.0)
    records[3].environment = {"backend": "torch", "kernels": {"reason": "no compiler"}}
    records[4].rows[1]["status"] = "oom"
    return plan, records


def counts(made):
    return made.counts


def nothing_measured(made):
    """All trials of one data set out of memory, one layer a baseline, and samples that no extractor compared."""

    def change(trial):
        samples = SampleSettings(count=256, extractor="toy-net").model_dump()
        return {"layer.baseline": trial.layer.row == SECOND, "training.samples": samples}

    plan, records = made.changed(made.seeds(1), change)
    for record in of(records, column="digits"):
        record.status, record.reason, record.rows = "oom", "no memory", []
    for record in of(records, column="waveforms"):
        record.notes["fidelity"] = "no FID, KID, precision and recall: Inception's weights are missing"
    return plan, records


def partly_measured(made):
    """Measures of samples of one layer alone; for the others the weights of the extractor are missing."""
    plan, records = sampled(made)
    for record in of(records, column="digits"):
        if record.trial["layer"]["row"] != FIRST:
            record.rows[0] |= dict.fromkeys(("fid", "kid", "kid_sd", "precision", "recall", "samples"))
            record.notes["fidelity"] = "no FID, KID, precision and recall: Inception's weights are missing"
    return plan, records


def rows_of_tables(made):
    """A likelihood in the units of the file, one value of which is lost; data sets of 8 and of 3 seeds."""
    plan, records = made.seeds(8)
    kept = tuple(trial for trial in plan.trials if trial.column == "digits" or trial.seed < 3)
    for record in of(records, column="waveforms"):
        record.rows[0]["nats_per_event"] = 100 + record.rows[0]["nats_per_dim"]
    lost = of(records, THIRD, "waveforms")[0]
    lost.rows[0] |= {"nats_per_dim": None, "nats_per_event": None}
    return plan.model_copy(update={"trials": kept}), records


SCENES = (plain, few_seeds, eight_seeds, failed, doubtful, described, published, one_seed, untuned, repeated, sampled)
SCENES += (unstable_times, counts, nothing_measured, partly_measured, rows_of_tables)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_report_has_the_text_of_its_file(scene, made, check_text):
    check_text(scene.__name__, ReportedResults.of(*scene(made)).report.markdown())
