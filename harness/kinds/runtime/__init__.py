"""Runtime trials: time the operations of layers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.kinds import IDENTITY, ORIGIN, OUTCOME, Dependencies, Kind
from harness.kinds.runtime.suite import RuntimeSuite
from harness.kinds.runtime.trial import RuntimeTrial


class RuntimeKind(Kind, name="runtime"):
    """Time all layers of one sweep point, alternating in one process."""

    suite = RuntimeSuite
    trial = RuntimeTrial
    columns = IDENTITY | OUTCOME
    columns |= {
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
        "outside_bytes": "Int64",
        "inverse_error": "Float64",
        "backend": "string",
        "dtype": "string",
    }
    columns |= ORIGIN | {"remark": "string"}

    alone = True

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
