"""The parts of `device_run.py` that need no device."""

import csv
import importlib.util
from pathlib import Path

import pytest
import torch
import yaml

SCRIPT = Path(__file__).with_name("device_run.py")
ABOUT = {"name": "A Device", "driver": "1.2", "runtime": "13.0", "clocks_mhz": {"clocks.sm": 1980}}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("device_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(layer, operation, ms, graph_ms=None, shape="3x32x32", batch=1024):
    return {"shape": shape, "batch": batch, "layer": layer, "operation": operation, "ms": ms, "graph_ms": graph_ms}


def times(**changed):
    """Return the times of one point that meets every target, with changes."""
    points = {"copy": 0.8, "forward": 1.0, "inverse": 1.05, "plu": 1.0, "levels": 30.0, "emerging": 0.09, "step": 1.9}
    points |= changed
    return [
        row("copy", "copy", 9.0, points["copy"]),
        row("conv1x1-plu", "forward", 9.0, points["plu"]),
        row("butterfly", "forward", 9.0, points["forward"]),
        row("butterfly", "inverse", 9.0, points["inverse"]),
        row("butterfly, level by level", "forward", points["levels"]),
        row("emerging", "inverse", 9.0, points["emerging"], batch=64),
        row("ButterflyFlow, width 16", "training step", 9.0, points["step"], shape="2x1024"),
    ]


def test_targets_that_are_met(script):
    assert all(met for _, _, met in script.verdicts(times()))


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"copy": 0.7}, "of a copy"),
        ({"plu": 0.9}, "of the 1x1"),
        ({"inverse": 1.2}, "inverse, in times of forward"),
        ({"levels": 29.0}, "level by level"),
        ({"emerging": 0.11}, "Emerging's inverse"),
        ({"step": 2.1}, "training step"),
    ],
)
def test_missed_targets_are_reported(script, changed, missed):
    (target,) = [target for target, _, met in script.verdicts(times(**changed)) if not met]
    assert missed in target
    assert "**no**" in script.table(times(**changed), ABOUT)


def test_the_slowest_point_decides_and_untimed_targets_are_not_met(script):
    rows = [*times(), *(row | {"shape": "3x64x64"} for row in times(plu=0.5)[:4])]
    (missed,) = [(target, value) for target, value, met in script.verdicts(rows) if not met]
    assert missed == ("forward, in times of the 1x1 convolution: at most 1", "2 at 3x64x64, batch 1024")
    assert [value for _, value, met in script.verdicts(times()[:5]) if not met] == ["not timed", "not timed"]


def test_the_sweeps_of_the_paper_are_timed(script):
    suite = yaml.safe_load((SCRIPT.parents[2] / "suites" / "runtime.yaml").read_text(encoding="utf-8"))
    for sweep in suite["profiles"]["paper"]["sweeps"].values():
        for shape in sweep["shapes"]:
            for batch in sweep.get("batches", [sweep.get("batch")]):
                assert (tuple(shape), batch) in script.POINTS
    assert len(set(script.POINTS)) == len(script.POINTS)
    assert max(batch * shape[0] * shape[1] * shape[2] for shape, batch in script.POINTS) < 2**27


def test_the_report_has_its_files(script, tmp_path):
    script.write(tmp_path, times(), ABOUT)
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(times())
    assert {line["device"] for line in lines} == {"A Device"} and lines[0]["clocks.sm"] == "1980"
    assert "Driver 1.2, CUDA 13.0, clocks.sm 1980 MHz" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "forward.svg").stat().st_size > 1000


def test_refusals_print_one_line_and_write_nothing(script, tmp_path, capsys):
    (tmp_path / "kept").write_text("kept")
    assert script.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    if not torch.cuda.is_available():
        assert script.main(["--out", str(tmp_path / "new")]) == 2
        assert "no CUDA device" in capsys.readouterr().err and not (tmp_path / "new").exists()
