"""Statistics over data sets: ranks and tests of published and hand-computed cases, and the null by simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.reporting.statistics import across
from harness.reporting.statistics.across import Standings, complete, outcome, smallest_p
from harness.reporting.statistics.statistics import Difference, Estimate, judged

# Demsar (JMLR 2006), table 6: ranks of four classifiers on 14 data sets.
CLASSIFIERS = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
DEMSAR = [
    *([4, 3, 2, 1], [1, 2, 3, 4], [4, 1, 2, 3], [4, 1, 3, 2], [4, 2, 3, 1], [1, 2.5, 4, 2.5], [3, 2, 4, 1]),
    *([2.5, 2.5, 4, 1], [4, 3, 2, 1], [2.5, 2.5, 2.5, 2.5], [4, 2.5, 1, 2.5], [3, 2, 4, 1], [4, 1, 2, 3]),
    [3, 1, 4, 2],
]


def standings(means, effects=None):
    """Return the standings of means, data sets x layers, with layers a, b, ... and effects on all data sets."""
    names = list("abcdefgh"[: np.shape(means)[1]])
    frame = pd.DataFrame(means, columns=names, dtype=float)
    return Standings(frame, -frame if effects is None else pd.DataFrame(effects, columns=names, dtype=float))


def test_ranks_and_friedmans_statistic_are_those_of_demsars_table():
    made = Standings(pd.DataFrame(DEMSAR, columns=CLASSIFIERS), pd.DataFrame(columns=CLASSIFIERS))
    assert dict(made.average_ranks.round(3)) == {"C4.5+m+cf": 1.964, "C4.5+m": 2.0, "C4.5+cf": 2.893, "C4.5": 3.143}
    assert made.average_ranks.index[0] == "C4.5+m+cf", "the lowest mean is the best"
    ties = 1 - (3 * (2**3 - 2) + (4**3 - 4)) / (14 * (4**3 - 4))  # Demsar's 9.28 has no correction for ties
    assert made.friedman.statistic * ties == pytest.approx(9.28, abs=0.01)
    of_f = 13 * made.friedman.statistic / (14 * 3 - made.friedman.statistic)  # Iman and Davenport's, as in the paper
    assert made.friedman.p == pytest.approx(stats.f.sf(of_f, 3, 39), abs=0.003)
    assert made.pairs is None and made.apart() == [], "no effects"


def test_equal_means_share_their_rank_and_few_data_sets_have_an_exact_p_or_none():
    made = standings([[1, 2, 2], [5, 7, 6], [0, 0, 0]])
    assert made.ranks.to_numpy().tolist() == [[1, 2.5, 2.5], [1, 3, 2], [2, 2, 2]]
    equal = standings([[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    assert equal.friedman == (0.0, 1.0) and (equal.pairs == 1).all(axis=None)
    # Three data sets that agree on three layers: 6 of 6^3 permutations have as large a statistic.
    made = standings([[1, 2, 3]] * 3).friedman
    assert made.statistic == pytest.approx(6.0) and made.p == pytest.approx(6 / 6**3)
    assert standings([[1, 2, 3], [1, 2, 3]]).friedman is None and standings([[1, 2, 3], [1, 2, 3]]).pairs is None
    assert standings([[1, 2], [1, 2], [1, 2]]).friedman is None


def test_pairs_have_holms_correction_and_name_the_better_layer():
    """Six data sets: a is ahead of b and c on all, b of c on five of them with the smallest difference against it."""
    made = standings([[0, 10 + n, 20 + 3 * n] for n in range(5)] + [[0, 16, 15.5]])
    # Of 64 signs: p = 2 / 64 for the former two; b against c has ranks 1 against 20, so p = 4 / 64.
    raw = {"ab": 2 / 64, "ac": 2 / 64, "bc": 4 / 64}
    assert raw["bc"] == stats.wilcoxon(made.effects["b"], made.effects["c"]).pvalue
    assert made.pairs.at["a", "b"] == made.pairs.at["c", "a"] == pytest.approx(3 * raw["ab"])
    assert made.pairs.at["b", "c"] == pytest.approx(3 * raw["ab"]), "Holm's p never falls"
    assert made.comparisons == 3 and not made.decidable and made.apart() == []
    made = standings([[0, 10 + n, 20 + 3 * n] for n in range(8)])
    assert made.decidable and [pair[:2] for pair in made.apart()] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert made.apart()[0][2] == pytest.approx(3 * 2 / 2**8)


@pytest.mark.parametrize(("datasets", "p"), [(1, 1.0), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_the_smallest_p_is_that_of_differences_of_one_sign(datasets, p):
    assert smallest_p(datasets) == p
    if datasets > 1:
        assert stats.wilcoxon(range(1, datasets + 1)).pvalue == p


def test_a_tie_is_what_is_not_shown_or_below_the_margin_and_few_data_sets_decide_nothing():
    clear = judged({"lower": [-0.5, -0.51, -0.49], "higher": [0.5, 0.51, 0.49], "tiny": [-0.005, -0.0051, -0.0049]})
    unclear = Difference(Estimate(-0.5, None, None, 1), values=(-0.5,))
    wide = judged({"wide": [-2.0, 1.0, -0.5]})["wide"]
    outcomes = [outcome(each, 0.01) for each in (*clear.values(), unclear, wide)]
    assert outcomes == ["win", "loss", "tie", "tie", "tie"]
    assert outcome(clear["tiny"], 0.001) == "win"
    enough = {layers: standings(np.outer(np.arange(1, 7), np.arange(layers))) for layers in (2, 3)}
    assert enough[2].decidable and not enough[3].decidable, "2 / 64, and three times that"


def test_the_most_cells_without_a_gap_are_kept():
    gap = np.nan
    means = pd.DataFrame(
        [[1, 2, 3, gap], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, gap, gap]], list("vwxyz"), list("abcd")
    )
    kept = complete(means)  # 4 data sets x 3 layers; 3 x 4 are as many cells, and 5 x 2 fewer
    assert list(kept.index) == list("vwxy") and list(kept.columns) == list("abc")
    assert complete(means.iloc[:2]) is None, "two data sets"
    assert complete(means[["a"]]) is None, "one layer"
    assert complete(means.loc[["v", "w", "z"], ["b", "c"]].assign(d=[gap, 1, 1])) is None, "three share one layer"


def test_equal_layers_are_called_different_in_one_of_twenty_sets_of_data_sets(monkeypatch):
    """Six data sets, four equal layers, and scales that differ by data set as those of nats and bits do."""
    monkeypatch.setattr(across, "RESAMPLES", 199)  # p of so few permutations is coarse, and as valid
    generator = np.random.default_rng(0)
    scales = 10.0 ** np.arange(-3, 3)[:, None]
    p_values = [standings(generator.standard_normal((6, 4)) * scales).friedman.p for _ in range(1000)]
    assert 0.035 < np.mean(np.array(p_values) <= 0.05) < 0.065
