"""Small trials, and commands in processes of their own, for the tests of executors."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.records import read_record
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial

PROJECT = Path(__file__).parents[3]
LAYER = LayerRef(row="one", layer="conv1x1")
COMMON = {"suite": "s", "profile": "smoke"}


@pytest.fixture(scope="session")
def trial():
    """Return a function that makes a trial of kind parameters, from its label and other settings."""
    settings = {**COMMON, "shape": (2, 4), "layer": LAYER, "flow": FlowSettings()}
    return lambda label="l", **changes: ParametersTrial(**settings | {"label": label} | changes)


@pytest.fixture(scope="session")
def timed():
    """Return a function that makes a trial of kind runtime, from its sweep."""
    return lambda sweep: RuntimeTrial(
        **COMMON, sweep=sweep, shape=(2, 4), batch=1, layers=(LAYER,), operations=("forward",)
    )


@pytest.fixture(scope="session")
def trained():
    """Return a function that makes a trial of kind density, from the settings of its data set."""
    fixed = {"layer": LAYER, "flow": FlowSettings(), "training": TrainingSettings(), "seed": 0}
    return lambda **data: DensityTrial(**COMMON, **fixed, data=DataRef(**data))


@pytest.fixture
def started(tmp_path):
    """Return a function that starts Python, with its output in a file; the process ends with the test."""
    processes = []

    def start(folder, environment, *arguments):
        log = tmp_path / f"output{len(processes)}.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment | {"PYTHONPATH": str(PROJECT)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process.output = lambda: log.read_text(errors="replace")
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def wait_for():
    """Return a function that waits until a condition holds, while a command runs, and returns its value."""

    def wait_for(condition, run=None, seconds=90.0):
        end = time.monotonic() + seconds
        while not (result := condition()):
            output = run.output() if run is not None else ""
            assert time.monotonic() < end, f"timed out: {output}"
            assert run is None or run.poll() is None, f"ended early: {output}"
            time.sleep(0.05)
        return result

    return wait_for


@pytest.fixture(scope="session")
def values():
    """Return a function from a folder to its results without times: statuses, rows, curves, arrays and weights."""

    def values(out):
        results = {}
        for path in sorted((out / "records").glob("*.json")):
            record = read_record(path)
            rows = [{key: row[key] for key in row if not key.endswith("_seconds")} for row in record.rows]
            curves = {key: curve for key, curve in record.curves.items() if key != "seconds"}
            results[record.id] = record.status, rows, curves, record.arrays, record.environment["sources"]
        return results, {path.name: path.read_bytes() for path in sorted(out.glob("weights/*.pt"))}

    return values
