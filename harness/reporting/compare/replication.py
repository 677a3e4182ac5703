"""Does it replicate? The verdicts of one suite under several draws of everything that it draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from harness.core.errors import UserError
from harness.reporting.frame import Results, csv_bytes, groups_of
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table, latex_tables, markdown
from harness.reporting.written import write_files

STEM = "replication"  # of the names of the files
KEYS = ["dataset", "first", "second"]
OUTCOMES = ("stayed", "weakened", "turned", "never significant")


@dataclass(frozen=True, eq=False, repr=False)
class Replication:
    """The pairs of layers that all draws compare.

    Attributes:
        differences: first - second, a row per data set and pair, a column per draw.
        separated: whether the draw shows the two to differ, likewise.
        runs: the results of each draw, by name, of a suite that was run.
        folder: of the tables, if they have been written.
    """

    differences: pd.DataFrame
    separated: pd.DataFrame
    runs: Mapping[str, Results] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def _verdicts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return whether each pair is shown to differ, and the sign of its difference: pairs by draws."""
        return self.separated.to_numpy(bool), np.sign(self.differences.to_numpy(float))

    @cached_property
    def outcomes(self) -> pd.Series:
        """The outcome of each pair.

        stayed: each draw shows the same order; weakened: not each, and no mean has the other sign; turned: in a draw
        that shows an order or in another, the mean has the other sign.
        """
        shown, signs = self._verdicts
        agreeing = (signs > 0).all(axis=1) | (signs < 0).all(axis=1)
        chosen = [~shown.any(axis=1), shown.all(axis=1) & agreeing, agreeing]
        outcomes = np.select(chosen, ["never significant", "stayed", "weakened"], "turned")
        return pd.Series(outcomes, self.differences.index, name="outcome")

    @cached_property
    def signs(self) -> pd.DataFrame:
        """The signs of each pair: each significant verdict is compared with the mean of each other draw.

        Columns: `compared`, the number of these comparisons; `other`, in how many the mean has the other sign,
        significant or not.
        """
        shown, signs = self._verdicts
        others = (signs[:, :, None] != signs[:, None, :]).sum(axis=2)  # for each draw, the draws of the other sign
        counts = {"compared": shown.sum(axis=1) * (shown.shape[1] - 1), "other": (others * shown).sum(axis=1)}
        return pd.DataFrame(counts, self.differences.index)

    @cached_property
    def leaders(self) -> dict[str, Counter[str]]:
        """Data set -> in how many draws each layer has the lowest mean."""
        leaders: dict[str, Counter[str]] = {}
        for dataset, pairs in groups_of(self.differences, "dataset"):
            first, second = (pairs.index.get_level_values(name) for name in ("first", "second"))
            for draw in pairs:
                worse = set(np.where(pairs[draw] > 0, first, second))
                leaders.setdefault(dataset, Counter()).update(sorted({*first, *second} - worse))
        return leaders

    @property
    def frame(self) -> pd.DataFrame:
        """A row per pair: its outcome, and the difference and whether it is shown in each draw."""
        differences = self.differences.add_prefix("difference, ")
        return pd.concat([self.outcomes, self.signs, differences, self.separated.add_prefix("shown, ")], axis=1)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.value_counts(sort=False).items())
        return f"<Replication in {self.differences.shape[1]} draws: {counts}>"

    def _repr_markdown_(self) -> str:
        """Return the tables as Markdown, which a notebook shows."""
        return "\n\n".join(map(markdown, replication_tables(self)))


def replication(comparisons: Mapping[str, pd.DataFrame]) -> Replication:
    """Return the verdicts of several draws, each as `harness.comparisons` returns them, by name.

    Raises:
        UserError: fewer than two draws, or no pair of layers that all of them compare.
    """
    if len(comparisons) < 2:
        raise UserError("a replication needs two draws or more; give further runs, or a higher --draws")
    every = {name: frame.set_index(KEYS) for name, frame in comparisons.items()}
    first = next(iter(every.values())).index
    shared = [pair for pair in first if all(pair in frame.index for frame in every.values())]
    if not shared:
        raise UserError(
            f"{', '.join(every)}: have no pair of layers on a data set in common that may be ranked in each; give runs "
            "of one suite whose layers are tuned"
        )
    index = pd.MultiIndex.from_tuples(shared, names=KEYS)
    columns = {
        column: pd.DataFrame({name: frame.loc[index, column] for name, frame in every.items()}, index)
        for column in ("difference", "separated")
    }
    return Replication(columns["difference"], columns["separated"])


def write_replication(result: Replication, folder: Path) -> None:
    """Write the tables as Markdown and LaTeX, and the pairs as CSV."""
    content = {
        f"{STEM}.md": f"{result._repr_markdown_()}\n".encode(),
        f"{STEM}.tex": f"{latex_tables(replication_tables(result))}\n".encode(),
        f"{STEM}.csv": csv_bytes(result.frame.reset_index()),
    }
    write_files(folder, content, ())


def replication_tables(result: Replication) -> list[Table]:
    """Return the counts by data set and in all, then the pairs whose verdict turned."""
    draws = list(map(str, result.differences))
    counted = pd.concat([result.outcomes, result.signs], axis=1)
    rows = [
        (dataset, *_counts(pairs), ", ".join(f"{row} {n}" for row, n in result.leaders[dataset].most_common()))
        for dataset, pairs in groups_of(counted, "dataset")
    ]
    rows += [("in all", *_counts(counted), "")] if len(rows) > 1 else []
    caption = (
        f"Does it replicate? Every pair of layers in {len(draws)} draws of everything that a suite draws. Stayed: "
        "each draw shows the same order; weakened: not each, and all means have one sign; turned: at least one draw "
        "shows an order, and the mean of another has the other sign. Other sign: each significant verdict of a draw is "
        "compared with the means of the other draws, one by one. Lowest mean: in how many draws."
    )
    header = ("data set", *OUTCOMES, "other sign", "lowest mean")
    made = [Table("replication", caption, header, tuple(rows), words=frozenset({len(header) - 1}))]
    turned = result.outcomes == "turned"
    if turned.any():
        signs = result.separated[turned].map(lambda shown: "*" * shown)
        texts = result.differences[turned].map("{:+.3f}".format) + signs
        about = "The pairs that turned: first - second in each draw; *: the draw shows an order."
        cells = tuple(tuple(map(str, row)) for row in texts.reset_index().to_numpy())
        made.append(Table("turned", about, (*KEYS, *draws), cells, words=frozenset({1, 2})))
    return made


def _counts(pairs: pd.DataFrame) -> list[str]:
    outcomes = Counter(pairs["outcome"])
    compared, other = int(pairs["compared"].sum()), int(pairs["other"].sum())
    share = f"{other} of {compared} ({100 * other / compared:.1f} %)" if compared else EMPTY
    return [*(str(outcomes[outcome]) for outcome in OUTCOMES), share]
