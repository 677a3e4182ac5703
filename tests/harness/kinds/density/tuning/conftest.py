"""A small tuned suite, and made-up records of its trials."""

from dataclasses import replace

import pytest
from toys import write_suite

from harness.core.records import blank_record, write_record
from harness.kinds.density.trial import as_text
from harness.planning.settle import load_suite, settle

SUITE = """\
suite: tuned
kind: density
title: Tuned
layers:
  conv1x1: {}
  butterfly: {options: {levels: 3}, tune: {initialisation: [identity, rotation]}}
tuning:
  candidates: 3
  steps: 2
  space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}
training: {batch_size: 8, steps: 4}
profiles:
  quick:
    seeds: 2
    flow: {levels: 1, steps: 1, width: 4}
    datasets: {digits: {}}
"""


@pytest.fixture(scope="session")
def tuned():
    """Return the text of the suite."""
    return SUITE


@pytest.fixture(scope="session")
def planned(tuned, tmp_path_factory):
    """Return a function that plans the suite under `--set` options and returns the plan."""
    path = write_suite(tmp_path_factory.mktemp("tuned"), tuned)

    def plan(*settings):
        return settle(load_suite(path), "quick", "cpu", settings=settings).plan()[0]

    return plan


@pytest.fixture
def leave(tmp_path):
    """Return a function that writes the record of a trial; the lower `value`, the better the candidate."""

    def write(trial, value=2.0, status="ok", out=tmp_path, **changes):
        record = blank_record(trial, status, None if status == "ok" else "a reason")
        row = {"unit": "bits_per_dim", "audit": "passed", "parameters": 9, "masked_free": 9}
        if trial.kind == "tuning":
            row |= {"validation": value}
        else:
            candidates = trial.tuning.candidates
            number = changes.get("row", {}).get("candidate", 0)
            chosen = as_text(dict(candidates[number]))
            row |= {"bits_per_dim": value, "candidate": number, "candidates": len(candidates), "chosen": chosen}
        record.rows = [row | changes.pop("row", {})] if status == "ok" else []
        environment = {"sources": {"layers/conv1x1.py": "aaa"}}
        record = replace(record, **{"seconds": 10.0, "environment": environment} | changes)
        write_record(out / "records", record)
        return record

    return write
