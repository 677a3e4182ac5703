import math

from harness.core.records import blank_record


def run(trial, root, out, progress, checkpoints):
    record = blank_record(trial, "ok", None)
    record.rows = [{"dataset": trial.label, "layer": trial.layer.row, "entries": math.prod(trial.shape)}]
    return record
