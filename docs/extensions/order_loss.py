"""Print the table of docs/findings/order.md: what a flow loses when the columns of a table are permuted.

`python docs/extensions/order_loss.py` makes it of the committed report of the suite `order`. For a flow and a layer,
with the negative log-likelihoods p_r of permuted columns and o_r of columns in order in repetition r of R, which share
training seed and tuning points,

    loss = mean of p_r - o_r,  interval = loss +- t(R - 1, 0.975) s / sqrt(R)  (nats/dim; s the deviation of p_r - o_r).

The split is the same in all repetitions, so no correction for overlap applies, and each interval is for itself.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from scipy.stats import t
from tabulate import tabulate

import harness

REPORT = Path(__file__).parents[2] / "reports" / "order-local-2core-xeon"
PERMUTED = " permuted"  # ends the label of the data set


def loss(values: pd.DataFrame, flow: str, layer: str) -> str:
    """Return the cell of a flow and a layer: mean in order, and the loss with its interval; a dash without both."""
    of_layer = values[values["layer"] == layer]
    in_order = of_layer[of_layer["dataset"] == flow].set_index("repetition")["nats_per_dim"]
    permuted = of_layer[of_layer["dataset"] == flow + PERMUTED].set_index("repetition")["nats_per_dim"]
    differences = (permuted - in_order).dropna()
    count = len(differences)
    if count < 2:
        return "–"
    half = t.ppf(0.975, count - 1) * differences.std() / math.sqrt(count)
    low, high = differences.mean() - half, differences.mean() + half
    return f"{in_order[differences.index].mean():.2f}, {differences.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def table(frame: pd.DataFrame) -> str:
    """Return a row for each layer and a column for each flow, of the results of a run (see `harness.load_results`)."""
    values = frame[(frame["status"] == "ok") & (frame["audit"] == "passed")]
    labels = dict.fromkeys(frame["dataset"])
    flows = [label for label in labels if label + PERMUTED in labels]
    rows = [[layer, *(loss(values, flow, layer) for flow in flows)] for layer in dict.fromkeys(frame["layer"])]
    heading = ["layer", *(f"{flow}: in order, loss" for flow in flows)]
    return tabulate(rows, headers=heading, tablefmt="pipe", colalign=["left"] + ["right"] * len(flows))


if __name__ == "__main__":
    print(table(harness.load_results(REPORT)))
