import math

from harness.core.records import blank_record


def run_entries(trial):
    record = blank_record(trial, "ok", None)
    record.rows = [{"dataset": trial.label, "layer": trial.layer.row, "entries": math.prod(trial.shape)}]
    return record
