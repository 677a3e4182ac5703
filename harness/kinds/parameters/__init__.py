"""Parameter trials: count the parameters of built models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.kinds import IDENTITY, ORIGIN, OUTCOME, Dependencies, Kind
from harness.kinds.parameters.suite import ParametersSuite
from harness.kinds.parameters.trial import ParametersTrial

if TYPE_CHECKING:
    from harness.planning.suite_model import Published


class ParametersKind(Kind, name="parameters"):
    """Build one model and count its parameters, without training it."""

    suite = ParametersSuite
    trial = ParametersTrial
    computes = False
    columns = IDENTITY | {"width": "Int64"} | OUTCOME
    columns |= {"parameters": "Int64", "published": "Int64", "masked_free": "Int64"} | ORIGIN

    def depends_on(self, trial: ParametersTrial) -> Dependencies:
        """Return the run; building a model runs no operator."""
        return Dependencies(
            ("harness.kinds.parameters.run",), mixer=trial.flow.mixer != "none", operators=False, perceptron=True
        )

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
