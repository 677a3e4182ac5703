"""A runtime trial has one row per layer and operation, also for those that fail."""

import pytest
import torch

from harness.checking.check_layer import construct
from harness.core.settings import LayerRef
from harness.kinds.runtime.run import run as run_runtime
from harness.kinds.runtime.trial import RuntimeTrial
from harness.timing.settings import TimingSettings
from layers import LAYERS, InvertibleLinear, UnsupportedShape
from layers.conv1x1 import Conv1x1


class Faulty(InvertibleLinear):
    def forward(self, x):
        return x, x.new_zeros(())

    def inverse(self, y):
        raise RuntimeError("no inverse today")


class Picky(InvertibleLinear):
    def __init__(self, shape):
        super().__init__(shape)
        raise UnsupportedShape("picky: serves nothing; use another layer")


class Averages(Conv1x1):
    """Register a hook for all modules at the first construction."""

    done = False

    def __init__(self, shape):
        super().__init__(shape)
        if not Averages.done:
            torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: None)
            Averages.done = True


class SlowsOthers(Conv1x1):
    """Change a setting after some calls only, in the midst of the measurement."""

    calls = 0

    def inverse(self, y):
        SlowsOthers.calls += 1
        if SlowsOthers.calls > 6:
            torch.set_default_dtype(torch.float64)
        return super().inverse(y)


class LooksUp(Conv1x1):
    """Return the last result for the same tensor and version of the weights."""

    kept = (None, None)

    def inverse(self, y):
        key = y.data_ptr(), y._version, self.lower._version
        if self.kept[0] != key:
            self.kept = key, super().inverse(y)
        return self.kept[1]


class ByNumpy(Conv1x1):
    """Copy the input of the inverse in NumPy."""

    def inverse(self, y):
        return super().inverse(torch.from_numpy(y.numpy() + 0.0))


@pytest.fixture
def register(monkeypatch):
    """Return a function that registers layers for the test."""
    return lambda **layers: [monkeypatch.setitem(LAYERS, name, layer) for name, layer in layers.items()]


def trial(*names):
    return RuntimeTrial(
        suite="runtime",
        profile="smoke",
        sweep="spatial",
        shape=(3, 4, 4),
        batch=2,
        layers=tuple(LayerRef(row=name, layer=name) for name in names),
        operations=("forward", "inverse"),
        timing=TimingSettings(warmup=1, rounds=2, min_sample_ms=0.01),
    )


def test_every_layer_and_operation_has_a_row(tmp_path):
    record = run_runtime(trial(*sorted(LAYERS)), None, tmp_path, lambda fraction, text: None)
    assert record.status == "ok"
    assert [(row["layer"], row["operation"]) for row in record.rows] == [
        (name, operation) for name in sorted(LAYERS) for operation in ("forward", "inverse")
    ]
    for row in record.rows:
        refusal, _ = construct(LAYERS[row["layer"]], (3, 4, 4), {})
        if refusal is not None:
            assert row["status"] == "unsupported" and row["reason"] == refusal
            continue
        assert row["status"] == "ok" and row["median_ms"] > 0 and row["iqr_ms"] >= 0 and row["shape"] == "3x4x4"
        assert row["backend"] and row["process"] == 0 and row["rounds"] == 2
        assert row["peak_bytes"] >= 4 * 2 * 48  # at least the output
        assert ("inverse_error" in row) == (row["operation"] == "inverse")
        assert row.get("inverse_error", 0) < 1e-4


def test_a_faulty_layer_is_a_row_and_the_others_are_timed(tmp_path, register):
    register(faulty=Faulty, picky=Picky)
    record = run_runtime(trial("faulty", "conv1x1", "picky"), None, tmp_path, lambda fraction, text: None)
    status = {(row["layer"], row["operation"]): row["status"] for row in record.rows}
    assert status == {
        ("faulty", "forward"): "ok",
        ("faulty", "inverse"): "error",
        ("conv1x1", "forward"): "ok",
        ("conv1x1", "inverse"): "ok",
        ("picky", "forward"): "unsupported",
        ("picky", "inverse"): "unsupported",
    }
    assert record.status == "error" and "no inverse today" in record.reason


def test_rows_note_that_a_layer_cut_the_event(tmp_path):
    threads = torch.get_num_threads()
    prime = trial("butterfly", "conv1x1").model_copy(update={"shape": (2, 37)})
    record = run_runtime(prime, None, tmp_path, lambda fraction, text: None)
    remarks = [(row["layer"], "the prime 37 is above 31" in row.get("remark", "")) for row in record.rows]
    assert torch.get_num_threads() == threads
    assert remarks == [("butterfly", True)] * 2 + [("conv1x1", False)] * 2


@pytest.mark.parametrize(("factor", "error"), [(float("nan"), None), (1.01, pytest.approx(0.01, rel=0.1))])
def test_the_times_of_a_wrong_inverse_do_not_count(tmp_path, monkeypatch, factor, error):
    right = Conv1x1.inverse
    monkeypatch.setattr(LAYERS["conv1x1"], "inverse", lambda self, y: right(self, y) * factor)
    record = run_runtime(trial("conv1x1"), None, tmp_path, lambda fraction, text: None)
    forward, inverse = record.rows
    assert forward["status"] == "ok" and forward["median_ms"] > 0
    assert inverse["status"] == "error" and inverse["median_ms"] is None and "differs from x" in inverse["reason"]
    assert inverse["inverse_error"] == error and ("inverse_error" in record.notes) == (error is None)


@pytest.mark.parametrize(
    ("layer", "change"),
    [(Averages, "_global_forward_hooks: none -> 1"), (SlowsOthers, "default dtype: torch.float32 -> torch.float64")],
)
def test_a_layer_that_changes_global_settings_is_an_error_and_others_are_timed(tmp_path, register, layer, change):
    register(guilty=layer)
    record = run_runtime(trial("guilty", "conv1x1"), None, tmp_path, lambda fraction, text: None)
    guilty, sound = record.rows[:2], record.rows[2:]
    assert all(row["status"] == "error" and change in row["reason"] for row in guilty)
    assert all(row["median_ms"] is None for row in guilty)
    assert all(row["status"] == "ok" and row["median_ms"] > 0 for row in sound)
    assert record.status == "error" and "guilty inverse: changes global settings" in record.reason
    assert torch.get_default_dtype() == torch.float32 and not torch.nn.modules.module._global_forward_hooks


def test_kept_results_are_an_error_and_memory_outside_torch_is_in_the_row(tmp_path, register):
    register(looks_up=LooksUp)
    record = run_runtime(trial("looks_up", "conv1x1"), None, tmp_path, lambda fraction, text: None)
    assert [row["status"] for row in record.rows] == ["ok", "error", "ok", "ok"]
    assert "of former values is kept" in record.rows[1]["reason"] and record.rows[1]["median_ms"] is None
    register(by_numpy=ByNumpy)
    large = trial("by_numpy").model_copy(update={"batch": 1024})
    forward, inverse = run_runtime(large, None, tmp_path, lambda fraction, text: None).rows
    size = 4 * 48 * 1024
    assert inverse["outside_bytes"] == pytest.approx(size, rel=0.05) and "outside_bytes" not in forward
