"""What a trial is, in words for a list of them."""

from __future__ import annotations

from harness.core.settings import DensityTrial, ExaminationTrial, ParametersTrial, RuntimeTrial, Trial


def identity(trial: Trial) -> tuple[str, str, str, str]:
    """Kind, column, layer and seed of a trial, for reading."""
    match trial:
        case DensityTrial():
            return trial.kind, trial.data.label, trial.layer.row, str(trial.seed)
        case ParametersTrial():
            return trial.kind, trial.label, f"{trial.layer.row}, width {trial.flow.width}", ""
        case ExaminationTrial():
            return trial.kind, f"{trial.examine}, {trial.label}", trial.layer.row, ""
        case RuntimeTrial():
            shape = "x".join(map(str, trial.shape))
            column = f"{trial.sweep}, {shape}, batch {trial.batch}"
            again = f", process {trial.process + 1}" if trial.process else ""
            return trial.kind, f"{column}{again}", ", ".join(one.row for one in trial.layers), ""
    return "", "", "", ""
