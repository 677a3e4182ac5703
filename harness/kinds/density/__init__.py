"""Density trials: train a flow and report its likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.kinds import IDENTITY, ORIGIN, OUTCOME, Dependencies, Kind
from harness.kinds.density.result import MEASURES, result_fault
from harness.kinds.density.suite import DensitySuite
from harness.kinds.density.trial import DensityTrial, FlowTrial

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.reporting.frame import Results
    from harness.reporting.tables.rendering import Table


class DensityKind(Kind, name="density"):
    """Train one flow, evaluate it on the test split once, audit its likelihood and draw samples."""

    suite = DensitySuite
    trial = DensityTrial
    deterministic = True
    columns = IDENTITY | OUTCOME | MEASURES | ORIGIN

    def depends_on(self, trial: FlowTrial) -> Dependencies:
        """Return the run, the data set, and the perceptron where a coupling may be one."""
        from harness.datasets import find_dataset

        dataset = find_dataset(trial.data.name)
        coupling = trial.flow.coupling
        if coupling == "auto" and not trial.layer.baseline:
            sequences = len(dataset.shape(dict(trial.data.options))) == 2
        else:
            sequences = coupling == "sequence" or trial.layer.baseline
        return Dependencies(
            ("harness.kinds.density.run",),
            classes=(type(dataset),),
            mixer=trial.flow.mixer != "none",
            perceptron=sequences,
        )

    def fault(self, trial: DensityTrial, record: Record) -> str | None:
        """See `Kind.fault`; under tuning, the chosen settings are those of the candidate."""
        faults = (result_fault(record), *map(trial.choice_fault, record.rows))
        return next(filter(None, faults), None) or super().fault(trial, record)

    def similar(self, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return all settings but the seed; flow and layer; flow: the latter two scale with the training examples."""
        examples = trial["training"]["steps"] * trial["training"]["batch_size"]
        column = [self.name, trial["data"]["label"], trial["flow"]]
        return [
            ([*column, trial["data"], trial["layer"], trial["training"]], 1.0),
            ([*column, "row", trial["layer"]["row"]], examples),
            ([*column, "any row"], examples),
        ]

    def table_at(self, results: Results, terms: str) -> Table:
        """Return the likelihoods at equal steps, seconds, parameters or width."""
        from harness.kinds.density.tables.equal_terms import equal_terms_table

        return equal_terms_table(results, terms)
