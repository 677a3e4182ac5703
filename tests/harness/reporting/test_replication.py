"""The verdicts of several draws of one suite: which stay, weaken and turn."""

import pandas as pd
import pytest

from harness.core.errors import UserError
from harness.reporting.compare.replication import replication, replication_tables
from harness.reporting.tables.rendering import markdown

PAIRS = [("digits", "a", "b"), ("digits", "a", "c"), ("digits", "b", "c"), ("icu", "a", "b"), ("icu", "a", "c")]


def draw(*differences):
    """Return the comparisons of a draw from the difference of each pair; one with a `*` is shown by its test."""
    rows = [(*pair, float(text.rstrip("*")), text.endswith("*")) for pair, text in zip(PAIRS, differences, strict=True)]
    return pd.DataFrame(rows, columns=["dataset", "first", "second", "difference", "separated"])


@pytest.fixture
def result():
    return replication(
        {
            "one": draw("-1*", "-1*", "+1", "-2*", "0"),
            "two": draw("-2*", "-1", "+1", "+1", "0"),
            "three": draw("-1*", "-3*", "-1", "+3*", "0"),
        }
    )


def test_pairs_signs_and_leaders_of_draws_are_counted_in_tables_that_name_what_turned(result):
    expected = ["stayed", "weakened", "never significant", "turned", "never significant"]
    assert list(result.outcomes) == expected
    assert list(result.outcomes.index) == PAIRS
    # icu, a - b: draws one (-2*) and three (+3*) are verdicts; two and three contradict one, and one contradicts three.
    assert result.signs.loc[("icu", "a", "b")].to_dict() == {"compared": 4, "other": 3}
    assert result.signs.loc[("digits", "a", "b")].to_dict() == {"compared": 6, "other": 0}
    assert result.signs.loc[("digits", "b", "c")].to_dict() == {"compared": 0, "other": 0}
    assert result.leaders["digits"] == {"a": 3}
    turned = replication({"one": draw("+1", "+1", "-1", "-1", "-1"), "two": draw("-1", "-1", "-1", "-1", "-1")})
    assert turned.leaders["digits"] == {"b": 1, "a": 1}
    counts, turned = replication_tables(result)
    assert counts.rows[0] == ("digits", "1", "1", "0", "1", "0 of 10 (0.0 %)", "a 3")
    assert counts.rows[1][:6] == ("icu", "0", "0", "1", "1", "3 of 4 (75.0 %)")
    assert counts.rows[2][0] == "in all" and counts.rows[2][5] == "3 of 14 (21.4 %)"
    assert turned.rows == (("icu", "a", "b", "-2.000*", "+1.000", "+3.000*"),)
    assert "icu" in markdown(turned)
    settled = replication({"one": draw("-1*", "-1", "1", "1", "1"), "two": draw("-1*", "-1", "1", "1", "1")})
    assert len(replication_tables(settled)) == 1


def test_pairs_that_a_draw_lacks_are_left_out_and_none_in_common_is_an_error():
    whole = draw("-1*", "-1*", "+1", "-2*", "0")
    assert len(replication({"one": whole, "two": whole.iloc[:2]}).outcomes) == 2
    with pytest.raises(UserError, match="have no pair of layers on a data set in common"):
        replication({"one": whole.iloc[:2], "two": whole.iloc[3:]})
    with pytest.raises(UserError, match="two draws or more"):
        replication({"one": whole})
