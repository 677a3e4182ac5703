"""The schema of results: every measure that a trial may enter into its record, as a typed column of results.csv.

A row of a record holds only these names: an unknown measure raises an error when a record is written and when it is
read; none is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

IDENTITY = {"suite": "string", "profile": "string", "dataset": "string", "layer": "string"}

COLUMNS: dict[str, dict[str, str]] = {
    "density": IDENTITY
    | {
        "seed": "Int64",
        "status": "string",
        "reason": "string",
        "check": "string",
        "parameters": "Int64",
        "masked_free": "Int64",
        "bits_per_dim": "Float64",
        "nats_per_dim": "Float64",
        "standard_error": "Float64",
        "median": "Float64",
        "worst": "Float64",
        "estimate_error": "Float64",
        "draws": "Int64",
        "importance_weighted": "Float64",
        "prior_nats_per_dim": "Float64",
        "log_det_nats_per_dim": "Float64",
        "preprocessing_nats_per_dim": "Float64",
        "validation": "Float64",
        "inverse_error": "Float64",
        "logdet_error": "Float64",
        "condition": "Float64",
        "floor": "Float64",
        "below_floor": "boolean",
        "audit": "string",
        "fid": "Float64",
        "kid": "Float64",
        "kid_sd": "Float64",
        "precision": "Float64",
        "recall": "Float64",
        "samples": "Int64",
        "extractor": "string",
        "neighbour_distance": "Float64",
        "neighbour_distance_test": "Float64",
        "steps": "Int64",
        "passes": "Int64",
        "train_seconds": "Float64",
        "device": "string",
        "id": "string",
        "unit": "string",
        "audit_reason": "string",
        "claimed": "Float64",
        "best_step": "Int64",
        "stopped_early": "boolean",
        "audit_seconds": "Float64",
    },
    "runtime": IDENTITY
    | {
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
    },
    "parameters": IDENTITY
    | {
        "width": "Int64",
        "seed": "Int64",
        "status": "string",
        "reason": "string",
        "check": "string",
        "parameters": "Int64",
        "published": "Int64",
        "masked_free": "Int64",
        "device": "string",
        "id": "string",
    },
    "examination": IDENTITY
    | {
        "examine": "string",
        "mixer": "string",
        "seed": "Int64",
        "status": "string",
        "reason": "string",
        "check": "string",
        "density": "Float64",
        "classes": "Int64",
        "sizes": "string",
        "log10_permutations": "Float64",
        "factors": "Int64",
        "realised": "Int64",
        "draws": "Int64",
        "log10_one_pass": "Float64",
        "block_size": "Int64",
        "layer_error": "Float64",
        "blocks_error": "Float64",
        "device": "string",
        "id": "string",
    },
}
"""Kind of trial -> its columns and their types, in the order of results.csv."""


def check_measures(kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is no column of its kind of trial."""
    known = COLUMNS.get(kind, {})
    unknown = sorted({name for row in rows for name in row} - known.keys())
    if unknown:
        raise ValueError(
            f"measure {', '.join(map(repr, unknown))} is not a column of results of kind {kind!r}; "
            "harness.core.measures.COLUMNS names the columns of each kind: add it there"
        )
