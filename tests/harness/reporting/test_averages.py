"""Columns of means over other columns, in suites, plans and tables."""

import re
import statistics

import pytest
from toys import grid, tables_of, write_suite

from harness.core.errors import SuiteError
from harness.planning.plan import Plan
from harness.planning.settle import load_suite, settle

SUITE = """\
suite: tiny
kind: density
title: A tiny suite
layers: {conv1x1: {}}
profiles:
  quick:
    datasets:
      one: {data: waveforms}
      two: {data: waveforms, options: {seed: 1}}
      digits: {}
    averages:
      mean: [one, two]
"""


def load(folder, *change):
    return load_suite(write_suite(folder, SUITE, *change), shapes=True)


# Suite and plan


def test_a_plan_has_the_averages_of_its_profile_and_of_set(tmp_path):
    loaded = load(tmp_path)
    assert settle(loaded, "quick", "cpu").plan()[0].averages == {"mean": ("one", "two")}
    made, trials = settle(loaded, "quick", "cpu", only=["dataset=one"]).plan()
    assert made.means == {"mean": ("one", "two")} and made.limited(trials).means == {}, "one data set has no mean"
    changed = settle(loaded, "quick", "cpu", settings=["averages.other=[two, one]"]).plan()[0]
    assert changed.averages == {"mean": ("one", "two"), "other": ("two", "one")}
    changed.save(tmp_path)
    assert Plan.load(tmp_path) == changed


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ("[one, tow]", "12:13: averages.mean: profiles.quick has no data set 'tow'; did you mean two?"),
        ("[one, one]", "12:13: averages.mean: names a data set twice; each counts once"),
        ("[one, digits]", "12:13: averages.mean: bits/dim of images and nats/dim of sequences have no common mean"),
        ("[one]", "averages.mean: a list is too short; it needs at least 2"),
        ("one", "averages.mean: expected a list, got the string 'one'"),
    ],
)
def test_a_wrong_average_is_refused_with_its_place(members, words, tmp_path):
    with pytest.raises(SuiteError) as caught:
        load(tmp_path, "[one, two]", members)
    assert words in str(caught.value) and str(caught.value).count("\n") == 0


def test_averages_need_a_new_name_and_a_density_suite(tmp_path):
    with pytest.raises(SuiteError, match=r"12:7: averages: 'one' is a data set of profiles\.quick; name the average"):
        load(tmp_path, "mean:", "one:")
    counted = SUITE.replace("kind: density", "kind: parameters").replace("  quick:\n", "  quick:\n    widths: [8]\n")
    with pytest.raises(SuiteError, match="unknown key 'averages'"):
        load_suite(write_suite(tmp_path, counted), shapes=True)
    unknown = r"--set averages\.x=\[one, three\]: averages\.x: profiles\.quick has no data s"
    with pytest.raises(SuiteError, match=unknown):
        settle(load(tmp_path), "quick", "cpu", settings=["averages.x=[one, three]"]).plan()


# Table

AVERAGE = {"average": ("digits", "waveforms")}


@pytest.fixture
def averaged(density_run):
    """Return the density run with both data sets in bits/dim, waveforms 1 higher than digits, and their average."""
    plan, records = density_run
    for record in records[:18]:
        higher = record.trial["data"]["label"] == "waveforms"
        record.rows[0] |= {"unit": "bits_per_dim", "bits_per_dim": record.rows[0]["bits_per_dim"] + higher}
    return plan.model_copy(update={"averages": AVERAGE}), records


def cells(run):
    """Return the cells of the average by layer, and the table."""
    table = tables_of(run)[0]
    return {row: cells["average, bits/dim ↓"] for row, cells in grid(table).items()}, table


def test_an_average_is_the_mean_of_the_columns_with_its_interval_over_seeds(averaged):
    records = averaged[1]
    # A seed that is 0.6 higher in one of two columns has a 0.3 higher average.
    records[0].rows[0]["bits_per_dim"] += 0.6
    column, table = cells(averaged)
    seeds = [(2.6 + 3.0) / 2, (2.01 + 3.01) / 2, (2.02 + 3.02) / 2]
    mean, low, high = map(float, re.findall(r"[\d.]+", column["conv1x1"]))
    assert mean == pytest.approx(statistics.fmean(seeds), abs=1e-3)
    assert min(seeds) - 1e-3 <= low < mean < high <= max(seeds) + 1e-3
    assert column["my_layer & co"] == "3.510 [3.500, 3.520]"
    assert table.header[:4] == ("layer", "digits, bits/dim ↓", "waveforms, bits/dim ↓", "average, bits/dim ↓")
    assert "average: the mean over digits, waveforms" in table.notes


def test_the_errors_of_one_seed_add_up_as_independent_ones(averaged, one_seed):
    plan, records = one_seed(averaged)
    for record in records[:6]:
        record.rows[0]["standard_error"] = {"digits": 0.03, "waveforms": 0.04}[record.trial["data"]["label"]]
    column, table = cells((plan, records))
    assert column["conv1x1"] == "2.500 ± 0.025"
    assert "average: the mean over digits, waveforms, ± as of independent data sets" in table.notes
    records[0].rows[0]["standard_error"] = None
    assert cells((plan, records))[0]["conv1x1"] == "2.500"


def test_values_in_different_units_have_no_average(density_run):
    plan, records = density_run
    column, table = cells((plan.model_copy(update={"averages": AVERAGE}), records))
    assert column["conv1x1"].startswith("–") and "a trial of waveforms has no value" in " ".join(table.notes)
