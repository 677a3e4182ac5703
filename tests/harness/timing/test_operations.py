"""Timed operations: the whole operation, on weights away from initialisation."""

import math
import mmap
import subprocess
import sys
from typing import get_args

import pytest
import torch
from torch import nn

from harness.timing import timing
from harness.timing.operations import events, inverse_error, perturb, prepare, remembered
from harness.timing.peak_memory import bytes_outside_torch, is_notable, peak_bytes
from harness.timing.settings import Operation, TimingSettings
from harness.timing.timing import Measurement, Sample, measure
from layers import LAYERS, InvertibleLinear

CPU = torch.device("cpu")
OPERATIONS = get_args(Operation)


class Counting(InvertibleLinear):
    """y = a * x per channel; counts the calls."""

    def __init__(self, shape):
        super().__init__(shape)
        self.scale = nn.Parameter(torch.ones(self.channels, *[1] * (len(shape) - 1)))
        self.calls = {"forward": 0, "inverse": 0}
        self.grad_modes = []

    def forward(self, x):
        self.calls["forward"] += 1
        self.grad_modes.append(torch.is_grad_enabled())
        return x * self.scale, self.positions * self.scale.abs().log().sum()

    def inverse(self, y):
        self.calls["inverse"] += 1
        self.grad_modes.append(torch.is_grad_enabled())
        return y / self.scale


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_can_be_timed(name, build_layer):
    layer = build_layer(name, (4, 8, 8))
    for operation in OPERATIONS:
        call = prepare(layer, 3, operation, dtype=torch.float32, device=CPU)
        call()
        call()  # a graph that is freed by the first call would fail in the second


def test_forward_records_gradients_and_backward_reaches_every_leaf():
    layer = Counting((2, 3))
    y, log_det = prepare(layer, 5, "forward", dtype=torch.float64, device=CPU)()
    assert y.requires_grad and log_det.requires_grad and layer.grad_modes == [True]
    x_gradient, scale_gradient = prepare(layer, 5, "forward_backward", dtype=torch.float64, device=CPU)()
    assert x_gradient.shape == (5, 2, 3)
    x = prepare(layer, 5, "inverse", dtype=torch.float64, device=CPU)()  # scale is 1: the input itself
    torch.testing.assert_close(scale_gradient.flatten(), x.sum((0, 2)) + 3)  # 3 positions, from the log-det


def test_the_log_det_alone_is_in_grad_mode():
    layer = LAYERS["cdflow"]((4, 8, 8))
    log_det = prepare(layer, 5, "log_det", dtype=torch.float64, device=CPU)()
    assert log_det.requires_grad and log_det == layer.log_det()


def test_inverse_is_without_grad():
    layer = Counting((2, 3))
    assert not prepare(layer, 5, "inverse", dtype=torch.float32, device=CPU)().requires_grad
    assert layer.calls == {"forward": 1, "inverse": 1} and layer.grad_modes == [False, False] and not layer.training
    prepare(layer, 5, "forward", dtype=torch.float32, device=CPU)
    assert layer.training


def test_warm_inverse_factorises_before_timing_and_inverts_forward():
    class Factorising(Counting):
        def inverter(self):
            self.calls["inverter"] = self.calls.get("inverter", 0) + 1
            scale = 1 / self.scale.detach()
            return lambda y: y * scale

    layer = Factorising((2, 3))
    with torch.no_grad():
        layer.scale.fill_(2.0)
    warm = prepare(layer, 5, "inverse_warm", dtype=torch.float64, device=CPU)
    assert layer.calls == {"forward": 1, "inverse": 0, "inverter": 1}
    x = events((2, 3), 5, dtype=torch.float64, device=CPU)
    torch.testing.assert_close(warm(), x)
    torch.testing.assert_close(warm(), x)
    assert layer.calls == {"forward": 1, "inverse": 0, "inverter": 1}
    torch.testing.assert_close(prepare(layer, 5, "inverse", dtype=torch.float64, device=CPU)(), x)


def test_inverse_error_is_relative_and_detects_nan():
    x = torch.tensor([0.5, -4.0])
    assert inverse_error(torch.tensor([0.75, -3.0]), x) == 0.25
    assert inverse_error(torch.tensor([0.5, float("nan")]), x) == math.inf


def test_perturb_changes_every_parameter():
    layer = LAYERS["butterfly"]((4, 8, 8))
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    assert before and all((value != before[name]).all() for name, value in layer.named_parameters())


def test_measure_alternates_and_counts():
    order = []
    cases = {name: lambda name=name: order.append(name) for name in "ab"}
    results = measure(cases, TimingSettings(warmup=2, rounds=3, min_sample_ms=1e-6), CPU)
    assert [len(result.samples) for result in results.values()] == [3, 3]
    runs = {name: name * (1 + results[name].calls) for name in "ab"}  # an untimed call, and the sample
    a, b = runs["a"], runs["b"]
    assert "".join(order) == "abab" + a + b + b + a + a + b
    assert all(result.median_ms > 0 and result.cpu_share > 0 for result in results.values())


def test_rounds_end_early_but_not_before_the_minimum(monkeypatch):
    now = 0.0
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)

    def call():
        nonlocal now
        now += 10.0

    settings = TimingSettings(warmup=1, rounds=30, budget_seconds=100.0)
    assert len(measure({"slow": call}, settings, CPU)["slow"].samples) == 11  # each of 10 s, the last begun at 100 s
    settings = TimingSettings(warmup=1, rounds=30, budget_seconds=1.0)
    assert len(measure({"slow": call}, settings, CPU)["slow"].samples) == timing.LEAST_ROUNDS
    assert len(measure({"slow": call}, TimingSettings(warmup=1, rounds=2), CPU)["slow"].samples) == 2


def test_warm_up_lasts_until_times_are_stable(monkeypatch):
    now, costs = 0.0, iter([])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)

    def call():
        nonlocal now
        now += next(costs)

    def passes(settings, times):
        nonlocal costs
        taken = list(times)
        costs = iter(taken)
        cost = timing.warm_up({"case": lambda: timing._sample(call, 1, CPU)}, settings)["case"]
        return len(taken) - len(list(costs)), cost

    assert passes(TimingSettings(warmup=4), [1.0] * 50) == (4, 1.0)
    assert passes(TimingSettings(warmup=1, warmup_seconds=20.0), [1.0] * 50)[0] == 20
    falling = [8.0 * 0.8**number for number in range(20)] + [0.1] * 1000
    count, cost = passes(TimingSettings(warmup=1, warmup_seconds=12.0), falling)
    assert count > 20 and cost == pytest.approx(0.1)
    endless = (0.5**number for number in range(40))  # never twice the same, 2 s in all
    assert passes(TimingSettings(warmup=1, warmup_seconds=0.4), endless)[0] == 3  # 1 + 0.5 + 0.25 > 4 * 0.4


def test_median_spread_and_drift():
    def measurement(*seconds):
        samples = tuple(Sample(time, cpu_seconds=time / 2, page_faults=3) for time in seconds)
        return Measurement(samples, calls=1)

    result = measurement(0.001, 0.002, 0.003, 0.004, 0.1)
    assert result.median_ms == pytest.approx(3.0) and result.iqr_ms == pytest.approx(2.0)
    assert result.cpu_share == pytest.approx(0.5) and result.page_faults == 3
    assert measurement(0.001, 0.001, 0.003, 0.003).drift == pytest.approx(2.0)
    assert measurement(0.5).iqr_ms == 0.0 and measurement(0.5).drift == 0.0


def test_page_faults_are_counted():
    size = 64 << 20
    result = measure({"fresh": lambda: mmap.mmap(-1, size).write(bytes(size))}, TimingSettings(rounds=2), CPU)["fresh"]
    assert result.page_faults >= size / mmap.PAGESIZE


class Remembering(Counting):
    """Return the result of the last call again where `key` has not changed."""

    key = staticmethod(lambda layer, x: None)
    last = (None, None)

    def recall(self, name, x, compute):
        key = (name, x.dtype, self.scale.dtype, self.key(self, x))
        if self.last[0] != key:
            self.last = key, compute(x)
            self.calls[name] = self.calls.get(name, 0) + 1
        return self.last[1]

    def log_det(self):
        return self.recall("log_det", self.scale, lambda scale: self.positions * scale.abs().log().sum())

    def forward(self, x):
        return self.recall("forward", x, lambda x: (x * self.scale, self.positions * self.scale.abs().log().sum()))

    def inverse(self, y):
        return self.recall("inverse", y, lambda y: y / self.scale)


KEYS = {
    "identity": lambda layer, x: (id(x), x._version, layer.scale._version),
    "address": lambda layer, x: (x.data_ptr(), layer.scale.data_ptr()),
    "input": lambda layer, x: (x.data_ptr(), float(x.detach().sum())),
    "content": lambda layer, x: (float(x.detach().double().sum()), float(layer.scale.detach().double().sum())),
}


@pytest.mark.parametrize(
    ("operation", "key"), [*(("forward", key) for key in KEYS), ("log_det", "address"), ("inverse", "content")]
)
def test_a_kept_result_is_refused_or_its_time_is_that_of_computing(key, operation, monkeypatch):
    monkeypatch.setattr(Remembering, "key", staticmethod(KEYS[key]))
    layer = Remembering((2, 3))
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    case = prepare(layer, 5, operation, dtype=torch.float32, device=CPU)
    case()
    before = layer.calls[operation]
    measure({"case": case}, TimingSettings(warmup=2, rounds=3, min_sample_ms=0.01), CPU)
    fault = remembered(case, Remembering((2, 3)))
    if key in ("input", "content"):
        assert fault is None and layer.calls[operation] - before >= 5  # in each timed one
    else:
        assert "of former values is kept" in fault


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rewriting_changes_every_value_and_stays_near(operation):
    layer = Counting((2, 3))
    case = prepare(layer, 5, operation, dtype=torch.float64, device=CPU)
    x, scale = case.events.detach().clone(), layer.scale.detach().clone()
    versions = case.events._version, layer.scale._version
    seen = set()
    for _ in range(500):
        case.rewrite()
        seen.add((float(case.events.detach().sum()), float(layer.scale.detach().sum())))
    assert (case.events._version, layer.scale._version) == versions
    assert len(seen) == 500
    if operation != "log_det":
        assert case.events.shape == x.shape and (case.events / x).log().abs().max() < math.log(3.4)
    moved = (layer.scale / scale).log().abs().max()
    assert moved == 0 if operation == "inverse_warm" else moved < 0.12


def test_a_case_that_changes_a_setting_is_named_and_others_run_without_it():
    seen = []
    cases = {
        "guilty": lambda: torch.set_default_dtype(torch.float64),
        "innocent": lambda: seen.append(torch.get_default_dtype()),
    }
    results = measure(cases, TimingSettings(warmup=1, rounds=2, min_sample_ms=1e-6), CPU)
    assert results["guilty"].changes == ("default dtype: torch.float32 -> torch.float64",)
    assert results["innocent"].changes == () and set(seen) == {torch.float32}


BURNS = "import time\nwhile time.process_time() < 0.05: pass"


def test_the_processor_time_of_started_processes_counts():
    serves = f"import sys, time\nfor line in sys.stdin:\n  begin = time.process_time()\n  {BURNS.splitlines()[1]}"
    serves = serves.replace("time.process_time() < ", "time.process_time() - begin < ") + "\n  print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", serves], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as server:

        def call():
            server.stdin.write("\n")
            server.stdout.readline()

        result = measure({"asks": call}, TimingSettings(warmup=1, rounds=1), CPU)["asks"]
        server.stdin.close()
    started = measure(
        {"waits": lambda: subprocess.run([sys.executable, "-c", BURNS])}, TimingSettings(warmup=1, rounds=1), CPU
    )["waits"]
    assert result.samples[0].cpu_seconds > 0.045 and started.samples[0].cpu_seconds > 0.045


def test_memory_outside_torch_is_noticed():
    x = torch.ones(1 << 18)

    def by_mapping():
        with mmap.mmap(-1, 8 << 20) as memory:
            memory.write(bytes(1 << 20) * 8)

    assert bytes_outside_torch(lambda: x.numpy() + 1) == pytest.approx(1 << 20, rel=0.01)
    assert bytes_outside_torch(by_mapping) >= 8 << 20
    assert bytes_outside_torch(x.tolist) > 1 << 20
    assert not is_notable(bytes_outside_torch(lambda: [(x + number).sum() for number in range(3)]), x)


def test_peak_memory_counts_simultaneous_allocations():
    x = torch.ones(1000)
    assert peak_bytes(lambda: x.clone(), CPU) == 4000
    assert peak_bytes(lambda: (x + 1, x + 2), CPU) == pytest.approx(8000, abs=64)  # the constants 1 and 2 take some
    assert peak_bytes(lambda: [(x + number).sum() for number in range(5)], CPU) < 5000
    assert peak_bytes(lambda: x.add_(1), CPU) < 64
