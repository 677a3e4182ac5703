"""The probe of a runtime trial: what it times, and how rounds and warm-up add up."""

import pytest

from harness.core.records import blank_record, read_record, write_record
from harness.core.settings import LayerRef
from harness.kinds.runtime.probe import run, seconds
from harness.kinds.runtime.trial import RuntimeTrial
from harness.timing.settings import TimingSettings


def trial(*layers, **timing):
    return RuntimeTrial(
        suite="s",
        profile="smoke",
        sweep="side",
        shape=(4, 7, 7),
        batch=2,
        layers=tuple(LayerRef(row=name, layer=name, options=options) for name, options in layers),
        operations=("forward", "inverse"),
        timing=TimingSettings(**timing),
    )


def test_a_probe_times_every_layer_and_operation(tmp_path):
    planned = trial(("conv1x1", {}), ("finc", {}), rounds=50, warmup_seconds=60.0)
    record = run(planned, None, tmp_path, lambda done, text: None)
    assert read_record(write_record(tmp_path, record)).id == planned.id and record.status == "ok"
    assert list(record.curves) == ["forward", "inverse"] and record.rows == []
    assert all(len(times) == 2 and min(times) > 0 for times in record.curves.values())


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        # the probe itself, 2 operations: warm-up, and rounds of 10 ms and 200 ms, the fast call after an untimed one
        ({"warmup": 3, "rounds": 10}, 1.5 + 2 * (3 * 0.21 + 10 * 0.22)),
        ({"warmup": 3, "rounds": 10, "warmup_seconds": 2.0}, 1.5 + 2 * (2.0 + 10 * 0.22)),
        ({"warmup": 1, "rounds": 10, "min_sample_ms": 30.0}, 1.5 + 2 * (0.21 + 10 * 0.24)),
        ({"warmup": 1, "rounds": 1000, "budget_seconds": 4.0}, 1.5 + 2 * (0.21 + 4.0)),
        ({"warmup": 1, "rounds": 1000, "budget_seconds": 0.5}, 1.5 + 2 * (0.21 + 5 * 0.22)),
    ],
)
def test_the_parts_add_up(timing, expected):
    planned = trial(("conv1x1", {}), ("finc", {}), ("emerging", {}), **timing)
    record = blank_record(planned, "ok", None)
    record.seconds, record.curves = 1.5, {name: [10.0, 200.0, None] for name in planned.operations}
    assert seconds(planned, record) == pytest.approx(expected)
