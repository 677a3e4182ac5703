"""Measurements of a point in several processes are merged, marked if unstable; and the answer above them."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.kinds.runtime.figures import sweeps
from harness.kinds.runtime.points import growth, merged
from harness.reporting.frame import rows_of, typed_frame
from harness.reporting.report import ReportedResults


def line(process=0, **changes):
    measured = {"median_ms": 1.0, "iqr_ms": 0.1, "drift": 0.0, "cpu_share": 1.0, "copy_ms": 0.1}
    identity = {"sweep": "a", "shape": "3x4x4", "batch": 2, "layer": "x", "operation": "forward", "device": "cpu"}
    return {**identity, "status": "ok", "process": process, **measured, **changes}


def together(lines, threads=1):
    return merged(typed_frame(lines), threads)


def only(*lines, threads=1):
    (point,) = rows_of(together(lines, threads))
    return point


def test_medians_of_processes_are_compared_and_the_worst_of_the_others_reported():
    near = only(line(median_ms=1.0), line(1, median_ms=1.1, iqr_ms=0.2))
    assert near.median_ms == pytest.approx(1.05) and near.iqr_ms == 0.2 and near.entries == 96
    assert near.gap == pytest.approx(0.1) and not near.unstable and pd.isna(only(line()).gap)
    point = only(line(inverse_error=1e-6, peak_bytes=10), line(1, inverse_error=1e-5, peak_bytes=8))
    assert point.inverse_error == 1e-5 and point.peak_bytes == 10
    assert pd.isna(only(line()).inverse_error)
    failed = {"median_ms": None, "status": "error", "reason": "no"}
    all_failed, half = only(line(**failed), line(1, **failed)), only(line(**failed), line(1))
    assert all_failed.status == "error" and not all_failed.unstable
    assert half.status == "ok" and half.median_ms == 1.0 and half.unstable
    lines = [line(layer="b"), line(layer="a"), line(1, layer="b"), line(layer="a", operation="inverse")]
    order = [f"{point.layer} {point.operation}" for point in rows_of(together(lines))]
    assert order == ["b forward", "a forward", "a inverse"]


@pytest.mark.parametrize(
    ("changes", "threads", "unstable"),
    [
        ({"median_ms": 1.2}, 1, True),
        ({"iqr_ms": 0.26}, 1, True),
        ({"drift": 0.11}, 1, True),
        ({"drift": -0.11}, 1, True),
        ({"cpu_share": 0.8}, 1, True),
        ({"cpu_share": 1.3}, 1, True),
        ({"cpu_share": 2.4}, 2, True),
        ({"status": "error", "median_ms": None}, 1, True),
        ({"median_ms": 1.15, "iqr_ms": 0.25, "drift": 0.1, "cpu_share": 0.9}, 1, False),  # the bounds
        ({"cpu_share": 1.1}, 1, False),
        ({"cpu_share": 0.5}, 2, False),  # of one thread alone
        ({"cpu_share": 0.5, "device": "cuda"}, 1, False),
        ({"cpu_share": 1.3, "device": "cuda"}, 1, False),
    ],
)
def test_one_unstable_process_marks_the_point(changes, threads, unstable):
    device = {name: value for name, value in changes.items() if name == "device"}
    assert only(line(**device), line(1, **changes), threads=threads).unstable == unstable


def test_growth_is_the_slope_of_the_logarithms_with_students_interval():
    """Compare with scipy.stats.linregress and the t quantile of two degrees of freedom."""

    def grown(times):
        return growth(together([line(batch=2**number, median_ms=time) for number, time in enumerate(times)]))

    assert grown([2.0 ** (1.5 * n) for n in range(4)]) == pytest.approx((1.5, 0.0), abs=1e-6)
    times = [1.0, 2.3, 3.7, 8.8]
    fit = stats.linregress(range(4), np.log2(times))
    assert grown(times) == pytest.approx((fit.slope, fit.stderr * stats.t.ppf(0.975, 2)), rel=1e-3)
    assert grown([1.0, 2.0]) is None and grown([None] * 4) is None


def test_memory_outside_torch_is_a_remark_at_the_peak(runtime_run):
    plan, records = runtime_run
    for record in records:
        record.rows[0]["outside_bytes"] = 10 * record.rows[0]["peak_bytes"]
    memory = next(table for table in ReportedResults.of(plan, records).report.tables if table.name.endswith("-memory"))
    row = next(row for row in memory.rows if row[0] == records[0].rows[0]["layer"])
    assert " [1]" in row[1] and "outside torch's allocator, which are not counted" in memory.notes[0]


def test_a_report_begins_with_the_first_sweep(runtime_run):
    plan, records = runtime_run
    results = ReportedResults.of(plan, records)
    first = next(iter(sweeps.figures(results)))
    assert first == "runtime-spatial" and first.startswith(results.report.answer.figures)
    assert ReportedResults.of(plan, []).report.answer is None
    for row in records[2].rows:  # the largest shape
        row["iqr_ms"] = 0.2 * row["median_ms"] if row["layer"] == "conv1x1" else row["median_ms"] * 1.2
    finding = ReportedResults.of(plan, records).report.answer.findings[0]
    assert finding.verdict == "no single fastest"
    assert "; no clear difference from my_layer & co 2.00 ms (0.800 to 3.20) † " in finding.text
