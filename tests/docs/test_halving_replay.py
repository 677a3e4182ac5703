"""The script behind the table of docs/concepts/tuning.md replays the rule of halving on the tunings of an archive."""

from fractions import Fraction
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL, HALF, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 4)


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("extensions/halving_replay.py")


@pytest.fixture(scope="module")
def complete(script):
    """Return the tunings of the suite `tuned`: four candidates of 200 steps, evaluated after every 50."""
    return list(script.tunings([ROOT / "reports" / "tuned-2core-epyc"]))


def test_a_rule_that_keeps_all_changes_no_choice_and_one_that_halves_counts_both_rungs(script, complete):
    outcomes = [script.replay(tuning, QUARTER, ALL) for tuning in complete]
    assert len(outcomes) == 80 and {outcome.loss for outcome in outcomes} == {0.0}
    assert {outcome.steps for outcome in outcomes} == {QUARTER + 1}
    for tuning in complete:
        failed = len(tuning.candidates) - len(tuning.values(tuning.candidates))
        outcome = script.replay(tuning, QUARTER, HALF)
        assert failed or outcome.steps == QUARTER + HALF
        assert outcome.loss is None or outcome.loss >= 0


def test_a_rule_is_replayed_only_where_the_curves_have_its_step(script, complete):
    assert {script.replay(tuning, Fraction(1, 3), HALF) for tuning in complete} == {None}
    assert "| 1/2" in script.table(complete) and "| 1/3                      " not in script.table(complete)


def test_a_worse_choice_is_a_loss(script, complete):
    """The candidate of the highest value is kept where the values of the first rung are reversed."""
    tuning = next(tuning for tuning in complete if len(tuning.values(tuning.candidates)) == 4)
    changed = {}
    for name, record in tuning.records.items():
        values = [None if value is None else -value for value in record.curves["validation"]]
        changed[name] = script.replace(record, curves=record.curves | {"validation": values})
    reversed_ = script.Tuning(tuning.candidates, changed)
    assert script.replay(reversed_, QUARTER, QUARTER).loss > 0 == script.replay(tuning, QUARTER, ALL).loss
