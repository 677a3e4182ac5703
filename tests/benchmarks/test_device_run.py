"""The parts of `device_run.py` that need no device."""

import csv
import importlib.util
from pathlib import Path

import pytest
import torch
import yaml
from torch.profiler import ProfilerActivity

SCRIPT = Path(__file__).with_name("device_run.py")
ABOUT = {"name": "A Device", "driver": "1.2", "runtime": "13.0", "clocks_mhz": {"clocks.sm": 1980}}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("device_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(layer, operation, graph_ms):
    point = {"shape": "3x32x32", "batch": 1024, "layer": layer, "operation": operation}
    return point | {"ms": 9.0, "graph_ms": graph_ms}


ROWS = [row("copy", "copy", 0.8), row("conv1x1-plu", "forward", 1.0), row("butterfly", "forward", None)]


def test_the_sweeps_of_the_paper_are_timed(script):
    suite = yaml.safe_load((SCRIPT.parents[2] / "suites" / "runtime.yaml").read_text(encoding="utf-8"))
    for sweep in suite["profiles"]["paper"]["sweeps"].values():
        for shape in sweep["shapes"]:
            for batch in sweep.get("batches", [sweep.get("batch")]):
                assert (tuple(shape), batch) in script.POINTS
    assert len(set(script.POINTS)) == len(script.POINTS)


def test_the_report_has_its_files(script, tmp_path):
    script.write(tmp_path, ROWS, ABOUT)
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(ROWS)
    assert {line["device"] for line in lines} == {"A Device"} and lines[0]["clocks.sm"] == "1980"
    assert (lines[2]["ms"], lines[2]["graph_ms"], lines[2]["driver"]) == ("9.0", "", "1.2")


def test_the_kernels_of_a_call_are_counted(script):
    rows = script.kernels_of(lambda: torch.ones(4, 4) @ torch.ones(4, 4), ProfilerActivity.CPU)
    assert {row["kernel"]: row["calls"] for row in rows}["aten::mm"] == 1


def test_refusals_print_one_line_and_write_nothing(script, tmp_path, capsys):
    (tmp_path / "kept").write_text("kept")
    assert script.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    if not torch.cuda.is_available():
        assert script.main(["--out", str(tmp_path / "new")]) == 2
        assert "no CUDA device" in capsys.readouterr().err and not (tmp_path / "new").exists()
