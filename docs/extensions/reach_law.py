"""Print and draw the leads of the suite `reach`: does a lead end where couplings see as far as the data depend?

`python docs/extensions/reach_law.py ROOT` prints the two tables of docs/findings/reach.md and draws its figure, of the
committed report and of the recordings below the folder ROOT. With x[n, t] the values of a channel less their mean,

    r(k) = mean over n and t of x[n, t] x[n, t + k]  /  mean over n and t of x[n, t]^2,

averaged over channels of the training windows. Two lengths stand for it, in samples: the first lag at which r is below
1/e, and the last one, of at most half a window, at which |r| is above 0.2. The second is large where a signal repeats
itself, as a heart does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from tabulate import tabulate

from harness.kinds.density.run import load_splits
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle
from harness.reporting.figures.figure_style import (
    COLOURS,
    INK,
    MARKERS,
    footnotes,
    panels,
    render,
    side_legend,
    style,
)

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "reports" / "reach-local-2core-epyc"
FIGURE = ROOT / "docs" / "figures" / "reach-law"
FIRST, LAST = 1 / math.e, 0.2
WINDOW = 256  # samples in which dependence is looked for, where windows are cut from recordings
CONTROL = "conv1x1-twice"
LAYERS = {"emerging": "Emerging", "periodic": "periodic", "recurrence": "recurrence"}
REACHES = ("1", "3", "9", "27", "81", "all")
FARTHEST = "81"  # of convolutions; couplings that see all positions are other networks
SAMPLES = 2  # that are neighbours in a position of the first level


def correlations(windows: np.ndarray) -> np.ndarray:
    """Return r(k) for k of 0 to half of the length of windows (N, C, L)."""
    centred = windows - windows.mean((0, 2), keepdims=True)
    spread = (centred**2).mean((0, 2))
    length = windows.shape[2]
    of_lags = [(centred[..., : length - lag] * centred[..., lag:]).mean((0, 2)) for lag in range(length // 2 + 1)]
    return np.mean(np.array(of_lags) / spread, axis=1)


def lengths(windows: np.ndarray) -> tuple[int, int]:
    """Return the first lag at which r is below 1/e, and the last one at which |r| is above 0.2."""
    r = correlations(windows.astype(float))
    below = np.flatnonzero(r < FIRST)
    return int(below[0]) if len(below) else len(r), int(np.flatnonzero(np.abs(r) > LAST)[-1])


def lengths_of_data(root: Path) -> dict[str, tuple[int, int]]:
    """Return data set -> its lengths, of the profile `local` in windows of WINDOW samples."""
    cut = [label for label, trial in _trials().items() if "length" in dict(trial.data.options)]
    settings = [f"datasets.{label}.options.{key}={WINDOW}" for label in cut for key in ("length", "stride")]
    return {label: lengths(load_splits(trial, root).train) for label, trial in _trials(settings).items()}


def _trials(settings: Sequence[str] = ()) -> dict[str, DensityTrial]:
    """Return a trial of each data set, beside couplings of one position."""
    trials = settle(load_suite("reach"), "local", "cpu", settings=list(settings)).plan()[0].trials
    return {trial.data.label: trial for trial in trials if "reach" not in trial.data.label}


def leads(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return columns dataset, reach, layer, lead, low, high, shown of comparisons.csv; a lead is above the control."""
    rows = []
    for pair in pairs.to_dict("records"):
        sides = {pair["first"]: -1, pair["second"]: 1}
        layer = next((name for name in LAYERS if sides.keys() == {name, CONTROL}), None)
        if layer is not None:
            sign = sides[layer]
            label, _, reach = pair["dataset"].partition(" reach ")
            low, high = sorted((sign * pair["low"], sign * pair["high"]))
            rows.append((label, reach or "1", layer, sign * pair["difference"], low, high, bool(pair["separated"])))
    return pd.DataFrame(rows, columns=["dataset", "reach", "layer", "lead", "low", "high", "shown"])


def end_of(found: pd.DataFrame, dataset: str, layer: str) -> str:
    """Return a share and a reach, "29%; 81": of the end of a layer's lead on a data set.

    The share is that of the lead beside couplings of one position that is left beside the farthest convolutions, and
    the reach the largest one at which the layer is shown to be ahead; "none" if at none.
    """
    rows = found[(found["dataset"] == dataset) & (found["layer"] == layer)].set_index("reach")
    ahead = rows.index[rows["shown"] & (rows["lead"] > 0)]
    last = next((reach for reach in reversed(REACHES) if reach in ahead), "none")
    share = rows["lead"].get(FARTHEST, math.nan) / rows["lead"].get(REACHES[0], math.nan)
    return f"{'–' if math.isnan(share) else f'{share:.0%}'}; {last}"


def tables(found: pd.DataFrame, of_data: Mapping[str, tuple[int, int]]) -> tuple[str, str]:
    """Return the ends of leads beside the lengths of the data, and all leads, as Markdown."""
    ends, cells = [], []
    for dataset, (first, last) in of_data.items():
        of_set = found[found["dataset"] == dataset]
        if of_set.empty:
            continue
        ends.append((dataset, first, last, *(end_of(found, dataset, layer) for layer in LAYERS)))
        for layer, name in LAYERS.items():
            by_reach = {row["reach"]: row for row in of_set[of_set["layer"] == layer].to_dict("records")}
            texts = [_text(by_reach[reach]) if reach in by_reach else "–" for reach in REACHES]
            cells.append((dataset, name, *texts))
    shown = [f"{name}: left at {FARTHEST}; last shown at" for name in LAYERS.values()]
    return (
        tabulate(ends, ["data set", "below 1/e", "above 0.2", *shown], "pipe"),
        tabulate(cells, ["data set", "layer", *REACHES], "pipe", disable_numparse=True),
    )


def _text(row: Mapping[str, object]) -> str:
    return "{lead:+.3f} [{low:+.3f}, {high:+.3f}]".format(**row)


def law_figure(found: pd.DataFrame, of_data: Mapping[str, tuple[int, int]], reaches: Sequence[str] = REACHES) -> Figure:
    """Draw the leads by reach, a panel for each data set, with a line where each length of the data lies."""
    names = [name for name in of_data if name in set(found["dataset"])]
    figure, grid = panels(len(names), 3.4, 2.5, columns=2)
    numbers = [int(reach) for reach in reaches[:-1]]
    for axes, dataset in zip(grid, names, strict=True):
        axes.axhline(0, color=INK, linewidth=1)
        for length, line in zip(of_data[dataset], ("--", ":"), strict=True):
            place = np.interp(math.log(length), np.log(SAMPLES * np.array(numbers)), np.arange(len(numbers)))
            axes.axvline(float(place), color=INK, linewidth=1, linestyle=line)
        for number, layer in enumerate(LAYERS):
            rows = found[(found["dataset"] == dataset) & (found["layer"] == layer)].set_index("reach")
            rows = rows.reindex([reach for reach in reaches if reach in rows.index])
            places = [reaches.index(reach) + 0.1 * (number - 1) for reach in rows.index]
            errors = [rows["lead"] - rows["low"], rows["high"] - rows["lead"]]
            look = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4}
            axes.errorbar(places, rows["lead"], yerr=errors, linewidth=1.2, capsize=2, **look)
        samples = [f"{SAMPLES * number}" for number in numbers]
        axes.set(title=dataset, xlabel="samples that a coupling sees", ylabel="lead, nats/dim (higher is better)")
        axes.set_xticks(range(len(reaches)), [*samples, "all"])
        axes.grid(axis="x", visible=False)
    handles = [
        Line2D([], [], color=COLOURS[number], marker=MARKERS[number], markersize=4, label=name)
        for number, name in enumerate(LAYERS.values())
    ]
    handles += [
        Line2D([], [], color=INK, linewidth=1, linestyle="--", label="r first below 1/e"),
        Line2D([], [], color=INK, linewidth=1, linestyle=":", label="|r| last above 0.2"),
        Line2D([], [], color=INK, linewidth=1, label="two 1x1 convolutions"),
    ]
    side_legend(figure, handles)
    footnotes(figure, ["lead over two 1x1 convolutions beside the same couplings, 95 % intervals; r: autocorrelation"])
    return figure


def main(root: Path) -> None:
    """Print the tables, and draw the figure."""
    found, of_data = leads(pd.read_csv(REPORT / "comparisons.csv")), lengths_of_data(root)
    print(*tables(found, of_data), sep="\n\n")
    with style():
        for suffix, image in render(law_figure(found, of_data)).items():
            FIGURE.with_suffix(suffix).write_bytes(image)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
