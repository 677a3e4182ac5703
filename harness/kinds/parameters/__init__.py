"""Parameter trials: count the parameters of built models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.kinds import IDENTITY, Dependencies, Kind
from harness.kinds.parameters.suite import ParametersSuite
from harness.kinds.parameters.trial import ParametersTrial

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.core.run_options import RunOptions
    from harness.core.settings import Progress
    from harness.planning.suite_model import Published
    from harness.reporting.compare.measure import Measure
    from harness.reporting.frame import Results
    from harness.reporting.tables.rendering import Table
    from harness.training.checkpoints import Checkpoints


class ParametersKind(Kind, name="parameters"):
    """Build one model and count its parameters, without training it."""

    suite = ParametersSuite
    trial = ParametersTrial
    computes = False
    columns = IDENTITY | {
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
    }

    def run(
        self, trial: ParametersTrial, run_options: RunOptions, progress: Progress, checkpoints: Checkpoints
    ) -> Record:
        """See `harness.kinds.parameters.run.run_parameters`."""
        from harness.kinds.parameters.run import run_parameters

        return run_parameters(trial, run_options.root, run_options.out, progress)

    def depends_on(self, trial: ParametersTrial) -> Dependencies:
        """Return the run; building a model runs no operator."""
        return Dependencies(
            ("harness.kinds.parameters.run",), mixer=trial.flow.mixer != "none", operators=False, perceptron=True
        )

    def measure(self) -> Measure:
        """See `harness.kinds.parameters.compare.CountMeasure`."""
        from harness.kinds.parameters.compare import CountMeasure

        return CountMeasure(self.name)

    def quoted(self, trial: ParametersTrial, published: Published | None) -> dict[str, Any]:
        """Return the published count beside the trial of its layer that has the width it was published for."""
        row, width = trial.layer.row, trial.flow.width
        if (
            published is None
            or published.measure != "parameters"
            or published.width(row, trial.label) not in (None, width)
        ):
            return {}
        return {"published": published.values.get(row, {}).get(trial.label)}

    def tables(self, results: Results) -> list[Table]:
        """See `harness.kinds.parameters.tables.parameters_tables`."""
        from harness.kinds.parameters.tables import parameters_tables

        return parameters_tables(results)
