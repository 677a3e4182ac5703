"""The rows of suites that train flows: layers in the shared backbone, controls, and whole flows of other papers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from harness.core.errors import UserError, nearest
from harness.core.settings import Flag, FlowSettings, LayerRef, TrainingSettings
from harness.core.third_party import is_third_party, resolve_class
from harness.kinds.density.tuning.space import Tune, TuningSettings
from harness.planning.suite_model import AnyRow, CellSettings, Row, Shape


def _tune(value: Any) -> Any:
    """Read false as None."""
    if value is True or not isinstance(value, (bool, dict)):
        raise ValueError("expected a mapping of options to their values, or false for a layer that is not tuned")
    return None if value is False else value


class TrainedCell(CellSettings):
    """The settings of one row on one data set.

    Attributes:
        training: the optimiser, the budget and the evaluations.
        tuning: the candidates among which validation chooses, and their space.
        tune: option -> list of values, or range; false: the layer is not tuned.
    """

    stated: ClassVar[Mapping[str, Collection[str]]] = {
        **CellSettings.stated,
        "tuning": ("",),
        "tune": ("layers",),
    }

    training: TrainingSettings = TrainingSettings()
    tuning: TuningSettings = TuningSettings()
    tune: Annotated[Tune | None, BeforeValidator(_tune, json_schema_input_type=Tune | Literal[False])] = Field(
        default_factory=dict
    )


class TrainedRow(Row):
    """A row that is a layer in the shared backbone, or a control (see `LayerRef`).

    Attributes:
        oracle: the flow knows the permutation of the data, and undoes it first.
        keep_mixer: keep the mixer beside a layer that replaces it.
    """

    oracle: Flag = False
    keep_mixer: Flag = False

    @property
    def covers_layer(self) -> bool:
        """True if the row stands for its layer, and is no control."""
        return not (self.oracle or self.keep_mixer)

    def reference(self, label: str, options: Mapping[str, Any], folder: Path | None) -> LayerRef:
        """Return the layer, or the control."""
        control = {"oracle": self.oracle, "keep_mixer": self.keep_mixer}
        return super().reference(label, options, folder).model_copy(update=control)


class BaselineRow(AnyRow):
    """A row that is a whole flow.

    Attributes:
        baseline: the name of the flow (`python -m harness list flows`), or package.module:CLASS; without it, the row's
            label is the name.
    """

    section: ClassVar[str] = "flows"
    key: ClassVar[str] = "baseline"
    levels: ClassVar[bool] = False
    field: ClassVar[Any] = Field(default_factory=dict, description="whole flows of other papers, by label")

    baseline: Annotated[str, Field(min_length=1)] | None = None

    def resolve(self, label: str, folder: Path | None) -> type[Any]:
        """Return the class of the baseline."""
        from flows import Flow
        from flows.baselines import BASELINES, find_baseline

        name, baselines = self.named(label), dict.fromkeys(BASELINES, Flow)
        if name in baselines:
            return find_baseline(name)
        if is_third_party(name) and ".py:" not in name:
            return resolve_class("flow", name, Flow, baselines, folder)
        hint = "`python -m harness list flows`, or package.module:CLASS"
        raise UserError(f"no baseline is called {name!r}; {nearest(name, baselines)} ({hint})")

    def build(self, cls: type[Any], label: str, shape: Shape, options: dict[str, Any], flow: FlowSettings) -> None:
        """Build the flow with one step of width 1 per level.

        Further steps and channels repeat what is there. Tensors of the meta device would take no memory at any size,
        but torch computes their shapes in Python, after two seconds of imports.
        """
        from flows.baselines import build_baseline

        build_baseline(self.reference(label, {}, None).layer, shape, flow.levels, 1, 1, 0, options)

    def reference(self, label: str, options: Mapping[str, Any], folder: Path | None) -> LayerRef:
        """Return the baseline."""
        content = {"row": label, "layer": self.named(label), "options": options, "baseline": True}
        return LayerRef.model_validate(content)
