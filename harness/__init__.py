"""Suites -> plan -> trials -> records -> tables and figures.

`init`, `run`, `plan`, `validate`, `report`, `merge`, `compare`, `replicate` and `verify` are what the commands call;
their keyword arguments are the options. Errors that the user can correct are `UserError` and its subclasses.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.core.file_modules import OwnPackages

sys.meta_path.insert(0, OwnPackages)

import harness.kinds  # noqa: E402, F401  registers the kinds of trials
from harness.core.arguments import Place, checked  # noqa: E402
from harness.core.errors import DataError, DataMissing, SuiteError, UserError  # noqa: E402
from harness.core.settings import Flag  # noqa: E402

if TYPE_CHECKING:
    import pandas as pd

    from harness.interface.init import init
    from harness.interface.plan import plan, validate
    from harness.interface.runs import merge, replicate, report, run, verify
    from harness.kinds.density.trained import TrainedFlow
    from harness.reporting.compare.comparison import compare

FUNCTIONS = {
    **dict.fromkeys(("run", "report", "merge", "replicate", "verify"), "harness.interface.runs"),
    **dict.fromkeys(("plan", "validate"), "harness.interface.plan"),
    "init": "harness.interface.init",
    "compare": "harness.reporting.compare.comparison",
}
"""Function -> its module, which is imported when the function is asked for: it may import pandas."""


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return getattr(import_module(FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *FUNCTIONS})


@checked
def load_results(folder: Place) -> pd.DataFrame:
    """Return the results of a run as a pandas frame: a line for each measured case of each trial, in plan order.

    Columns and types are those of each kind (`harness.core.trial.TRIALS[kind].columns`), as in results.csv: text is
    "string", counts are "Int64", measures "Float64", flags "boolean", and what was not measured is <NA>. `status` is
    "ok", another status of a trial, or "missing" for one that has not run; likelihoods with `audit` "failed" are none
    to compare.

    Args:
        folder: OUT/<suite>, written by `run`, or an archive of its records.

    Raises:
        UserError: no suite was run in it, or its plan or a record cannot be read.
    """
    from harness.reporting.frame import Results

    return Results.read(folder).table


@checked
def comparisons(folder: Place, margin: float | None = None) -> pd.DataFrame:
    """Return the differences of every two ranked layers, on each data set and average of a density suite.

    Columns and types are those of comparisons.csv: `dataset`, or the name of an average; `first` and `second`, the
    layers; `unit`; `pairs`, the number of seeds or repetitions that both have; `difference`, the mean of first - second
    (below zero the first is better) with the ends `low` and `high` of its 95 % interval; `p`, of the paired t test
    after Holm's correction for all rows of the data set, and `p_raw` before it; `separated`, whether the two are shown
    to differ after this correction, at any number of pairs from three on: below eight, the interval has the level of
    its step, and excludes zero only where the two are shown to differ; `effect`, Cohen's d of paired values;
    `detectable`, the smallest difference that this test finds with 80 % power, two-sided at the first step of Holm's
    correction; `leads`, the share of pairs in which the first layer has the lower value; `margin` and `p_equivalent`,
    which is small where the layers are shown to differ by less than the margin (two one-sided tests, not corrected for
    other rows); `sources`, what varies from pair to pair. Without a test, below eight pairs, its columns are <NA>.

    Over repetitions, intervals and tests have the variance of Nadeau and Bengio (2003), for test splits that overlap.

    Args:
        folder: OUT/<suite>, written by `run`, or an archive of its records.
        margin: the difference, in `unit`, below which layers count as equal. By default 5 % of the distance between
            the best and the worst of the controls (two 1x1 convolutions, fixed maps, a scale for each entry), and <NA>
            with fewer than two of these.

    Raises:
        UserError: no suite of likelihoods was run in it, its plan or a record cannot be read, or the margin is not
            positive.
    """
    from harness.reporting.report import ReportedResults

    return ReportedResults.read(folder).comparisons(margin)


@checked
def load_flow(folder: Place, trial: str, device: str = "cpu", *, third_party: Flag = False) -> TrainedFlow:
    """Return the trained flow of a trial with its pre-processing, to sample and score events in the units of the data.

    The weights are those that were evaluated, from `weights/` of the folder, where `run` keeps them for every trial of
    kind density (not for candidates of a tuning). The data need not be there. Reading weights runs no code of the file.

    Args:
        folder: OUT/<suite>, written by `run`.
        trial: the id of a trial, as in the column `id` of results.csv.
        device: of the flow, "cpu" or "cuda".
        third_party: import the third-party layers and data sets that the plan names, which runs their code. They are
            looked for from the working directory, as when the suite was run.

    Raises:
        UserError: there is no such trial, it left no weights, the source of its layer or flow has changed since, or
            it needs third-party code without `third_party`.

    Warns:
        UserWarning: the trial failed its audit.
    """
    from harness.execution.trained import load_trained_model

    flow: TrainedFlow = load_trained_model(folder, trial, device, third_party)
    return flow


__all__ = [
    "DataError",
    "DataMissing",
    "SuiteError",
    "UserError",
    "compare",
    "comparisons",
    "init",
    "load_flow",
    "load_results",
    "merge",
    "plan",
    "replicate",
    "report",
    "run",
    "validate",
    "verify",
]
