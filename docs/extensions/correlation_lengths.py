"""Print how far the samples of each recording of the suite `reach` depend on each other, beside what couplings see.

`python docs/extensions/correlation_lengths.py ROOT` reads the training windows of the profile `local` below the folder
ROOT. With x[n, t] the values of a channel less their mean,

    r(k) = mean over n and t of x[n, t] x[n, t + k]  /  mean over n and t of x[n, t]^2,

averaged over channels. Two lengths stand for it, in samples: the first lag at which r is below 1/e, and the last one,
of at most half a window, at which |r| is above 0.2. The second is large where a signal repeats itself, as a heart does.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from tabulate import tabulate

from harness.kinds.density.run import load_splits
from harness.planning.settle import load_suite, settle

FIRST, LAST = 1 / math.e, 0.2


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


def main(root: Path) -> None:
    """Print the table."""
    trials = settle(load_suite("reach"), "local", "cpu").plan()[0].trials
    firsts = {trial.data.label: trial for trial in trials if " " not in trial.data.label}
    rows = []
    for label, trial in firsts.items():
        train = load_splits(trial, root).train
        rows.append((label, "x".join(map(str, train.shape[1:])), *lengths(train)))
    print(tabulate(rows, ("data set", "window", "below 1/e", "above 0.2"), tablefmt="pipe"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
