"""Runtime trials: time the operations of layers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.kinds import IDENTITY, Dependencies, Kind
from harness.kinds.runtime.suite import RuntimeSuite
from harness.kinds.runtime.trial import RuntimeTrial

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.core.run_options import RunOptions
    from harness.core.settings import Progress
    from harness.reporting.compare.measure import Measure
    from harness.reporting.frame import Results
    from harness.reporting.tables.rendering import Table
    from harness.training.checkpoints import Checkpoints


class RuntimeKind(Kind, name="runtime"):
    """Time all layers of one sweep point, alternating in one process."""

    suite = RuntimeSuite
    trial = RuntimeTrial
    columns = IDENTITY | {
        "seed": "Int64",
        "status": "string",
        "reason": "string",
        "check": "string",
        "parameters": "Int64",
        "operation": "string",
        "sweep": "string",
        "shape": "string",
        "batch": "Int64",
        "process": "Int64",
        "median_ms": "Float64",
        "iqr_ms": "Float64",
        "drift": "Float64",
        "copy_ms": "Float64",
        "cpu_share": "Float64",
        "page_faults": "Float64",
        "rounds": "Int64",
        "calls": "Int64",
        "peak_bytes": "Int64",
        "inverse_error": "Float64",
        "backend": "string",
        "dtype": "string",
        "device": "string",
        "id": "string",
        "remark": "string",
    }

    alone = True
    figures_first = True

    def run(self, trial: RuntimeTrial, run_options: RunOptions, progress: Progress, checkpoints: Checkpoints) -> Record:
        """See `harness.kinds.runtime.run.run_runtime`."""
        from harness.kinds.runtime.run import run_runtime

        return run_runtime(trial, run_options.root, run_options.out, progress)

    def depends_on(self, trial: RuntimeTrial) -> Dependencies:
        """Return the run alone: layers are timed without a flow."""
        return Dependencies(("harness.kinds.runtime.run",))

    def similar(self, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return the same point, then the same sweep."""
        rows = [layer["row"] for layer in trial["layers"]]
        return [
            ([trial["shape"], trial["batch"], rows, trial["timing"]], 1.0),
            ([trial["sweep"], rows, trial["timing"]], 1.0),
        ]

    def measure(self) -> Measure:
        """See `harness.kinds.runtime.compare.TimeMeasure`."""
        from harness.kinds.runtime.compare import TimeMeasure

        return TimeMeasure(self.name)

    def tables(self, results: Results) -> list[Table]:
        """See `harness.kinds.runtime.tables.runtime_tables`."""
        from harness.kinds.runtime.tables import runtime_tables

        return runtime_tables(results)
