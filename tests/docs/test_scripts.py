"""The scripts of docs/ follow the rules and definitions that they state."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.patches import PathPatch

from harness import load_results
from layers.butterfly import Butterfly

ROOT = Path(__file__).parents[2]
SETS = ("a", "b", "c", "d")
EQUAL = "butterfly or Woodbury"  # in the order of their means
BEHIND = {("emerging", "a"): (0.5, 0.5), ("emerging", "b"): (-0.5, 0), ("periodic", "a"): (0.1, 0.1)}


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("extensions/decision_table.py")


def pairs(leads):
    """Return comparisons of (layer, data set) -> lead over each 1x1 control, 0 where none is shown."""
    rows = []
    for (layer, dataset), by_control in leads.items():
        for control, lead in zip(("conv1x1", "conv1x1-twice"), by_control, strict=True):
            first, second, sign = (layer, control, -1) if control == "conv1x1" else (control, layer, 1)
            mean = sign * lead
            rows.append((dataset, first, second, mean, mean - 0.1, mean + 0.1, lead != 0, "nats/dim"))
    return pd.DataFrame(rows, columns=["dataset", "first", "second", "difference", "low", "high", "separated", "unit"])


def test_leads_on_three_of_four_data_sets_are_strong_unless_replications_turned_them(script):
    found = pairs({("emerging", name): ((0.5, 0.4) if name != "d" else (0, 0)) for name in SETS})
    answer = script.answer(found, SETS)
    assert (answer.layers, answer.sure) == ("Emerging convolution", "strong: 3 of 4 data sets")
    assert [(lead.dataset, lead.sign) for lead in answer.leads] == [("a", 1), ("b", 1), ("c", 1), ("d", 0)]
    assert answer.leads[0].text == "+0.500 [+0.400, +0.600] nats/dim"
    assert script.answer(found, SETS, frozenset({"emerging"})).sure == "weak: 3 of 4 data sets"
    found = pairs({("butterfly", "a"): (0.9, 0.9), ("entry-scale", "a"): (0.8, 0.8), ("woodbury", "a"): (0.2, 0.2)})
    found.loc[len(found)] = ("a", "butterfly", "woodbury", -0.7, -0.9, -0.5, True, "nats/dim")
    assert script.answer(found, SETS).layers == "butterfly or a scale for each entry"
    rows = [
        ("a", "conv1x1", "emerging", "turned"),
        ("a", "butterfly", "conv1x1-twice", "turned"),
        ("b", "cdflow", "conv1x1-twice", "turned"),
        ("a", "periodic", "woodbury", "turned"),
        ("a", "conv1x1", "woodbury", "weakened"),
    ]
    outcomes = pd.DataFrame(rows, columns=["dataset", "first", "second", "outcome"])
    assert script.turned_layers(outcomes, "a") == {"emerging", "butterfly"}


def test_the_tables_of_the_page_are_those_of_the_script(script):
    """Print them by `python docs/extensions/decision_table.py` and put them into the page."""
    page = (ROOT / "docs" / "findings" / "decision.md").read_text()
    assert all(table in page for table in script.tables())


def test_leads_on_tables_are_over_a_random_permutation_and_the_matrix_that_permutes(script):
    usual = tuple(script.TABLES.usual)
    found = pairs({("orthogonal", "a"): (0.5, 0.4), ("emerging", "a"): (0.9, 0.9)})
    found = found.replace({"conv1x1": usual[0], "conv1x1-twice": usual[1]})
    answer = script.answer(found, SETS, study=script.TABLES)
    assert usual == ("permutation", "plu")
    assert (answer.layers, answer.sure) == ("orthogonal matrix", "weak: 1 of 1 data set")
    found = pairs({("whitening", "a"): (-0.5, 0.0)}).replace({"conv1x1": usual[0], "conv1x1-twice": usual[1]})
    assert script.answer(found, SETS, study=script.TABLES).layers == "random permutation"


@pytest.mark.parametrize(
    ("leads", "sets", "layer", "sure"),
    [
        ({("emerging", "a"): (0.9, 0), ("butterfly", "a"): (0.3, 0.1)}, SETS, "butterfly", "weak: 1 of 1 data set"),
        ({("woodbury", "a"): (0.2, 0.2), ("butterfly", "a"): (0.3, 0.1)}, SETS, EQUAL, "weak: 1 of 1 data set"),
        (BEHIND, SETS, "periodic convolution", "weak: 1 of 1 data set"),
        ({("emerging", "a"): (0.5, 0), ("periodic", "a"): (0.2, 0)}, SETS, "1x1 convolution", "none shown"),
        ({("emerging", "a"): (0.5, -0.5)}, SETS, "1x1 convolution", "none shown"),
        ({("emerging", "a"): (0.5, 0.5)}, ("e",), None, "not measured"),
        ({("emerging", "a"): (0.5, 0.5)}, (), None, "not measured"),
    ],
)
def test_the_answer_follows_from_the_leads(script, leads, sets, layer, sure):
    answer = script.answer(pairs(leads), sets)
    assert answer.sure == sure and layer in (None, answer.layers)


ALL, HALF, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 4)


@pytest.fixture(scope="module")
def replayed(load_script):
    return load_script("extensions/halving_replay.py")


@pytest.fixture(scope="module")
def complete(replayed):
    """Return the tunings of the suite `tuned`: four candidates of 200 steps, evaluated after every 50."""
    return list(replayed.tunings([ROOT / "reports" / "tuned-2core-epyc"]))


def test_a_rule_that_keeps_all_changes_no_choice_and_one_that_halves_counts_both_rungs(replayed, complete):
    outcomes = [replayed.replay(tuning, QUARTER, ALL) for tuning in complete]
    assert len(outcomes) == 80 and {outcome.loss for outcome in outcomes} == {0.0}
    assert {outcome.steps for outcome in outcomes} == {QUARTER + 1}
    for tuning in complete:
        failed = len(tuning.candidates) - len(tuning.values(tuning.candidates))
        outcome = replayed.replay(tuning, QUARTER, HALF)
        assert failed or outcome.steps == QUARTER + HALF
        assert outcome.loss is None or outcome.loss >= 0
    assert {replayed.replay(tuning, Fraction(1, 3), HALF) for tuning in complete} == {None}
    assert "| 1/2" in replayed.table(complete) and "| 1/3                      " not in replayed.table(complete)


def test_a_worse_choice_is_a_loss(replayed, complete):
    """The candidate of the highest value is kept where the values of the first rung are reversed."""
    tuning = next(tuning for tuning in complete if len(tuning.values(tuning.candidates)) == 4)
    changed = {}
    for name, record in tuning.records.items():
        values = [None if value is None else -value for value in record.curves["validation"]]
        changed[name] = replayed.replace(record, curves=record.curves | {"validation": values})
    reversed_ = replayed.Tuning(tuning.candidates, changed)
    assert replayed.replay(reversed_, QUARTER, QUARTER).loss > 0 == replayed.replay(tuning, QUARTER, ALL).loss


@pytest.fixture(scope="module")
def drawing(load_script):
    return load_script("figures/butterfly_supports.py")


def drawn(axes):
    """Return the matrix of blue cells of a panel."""
    size = round(axes.get_xlim()[1])
    matrix = np.zeros((size, size), dtype=int)
    (cells,) = (patch for patch in axes.patches if isinstance(patch, PathPatch))
    for outline in cells.get_path().to_polygons():
        assert np.ptp(outline, axis=0).tolist() == [1, 1]
        column, row = outline.min(axis=0).astype(int)
        matrix[row, column] += 1
    return matrix


def test_draws_the_factors_of_the_paper(drawing):
    layers = [Butterfly((1, 16)), Butterfly((3, 8), block_size=3)]
    panels = {axes.get_title(): axes for axes in drawing.support_figure(layers).axes if axes.axison}
    supports = {name: support for layer in layers for name, support in drawing.factor_supports(layer).items()}
    assert panels.keys() == supports.keys() and len(panels) == 7
    for name, support in supports.items():
        assert np.array_equal(drawn(panels[name]), support.astype(int))
        assert panels[name].get_ylim() == (len(support), 0)  # row 0 on top, as in a matrix


@pytest.mark.parametrize(("shape", "width", "levels"), [((1, 16), 1, 4), ((3, 8), 3, 3), ((2, 6), 2, 1)])
def test_supports_equal_those_of_the_layer(drawing, shape, width, levels):
    """A layer of one factor with weights away from the identity is non-zero exactly where its picture is blue."""
    supports = drawing.factor_supports(Butterfly(shape, block_size=width, levels=levels))
    assert len(supports) == levels
    for level, support in enumerate(supports.values(), start=1):
        layer = Butterfly(shape, block_size=width, levels=[level], initialisation="rotation")
        assert torch.equal(layer.dense() != 0, torch.from_numpy(support))


@pytest.fixture(scope="module")
def reach(load_script):
    return load_script("extensions/reach_law.py")


def test_lengths_of_an_autoregressive_process_and_of_a_sine(reach):
    generator, length = np.random.default_rng(0), 256
    process = np.zeros((2000, 1, length))
    process[..., 0] = generator.normal(size=(2000, 1)) / np.sqrt(1 - 0.9**2)
    for t in range(1, length):
        process[..., t] = 0.9 * process[..., t - 1] + generator.normal(size=(2000, 1))
    assert np.allclose(reach.correlations(5 + 3 * process)[:20], 0.9 ** np.arange(20), atol=0.03)
    assert reach.lengths(process) == (10, 15), "0.9^10 < 1/e < 0.9^9, and 0.9^15 > 0.2 > 0.9^16"
    phases = generator.uniform(0, 2 * np.pi, (2000, 1, 1))
    sine = np.sin(2 * np.pi * np.arange(length) / 32 + phases)
    assert reach.lengths(np.concatenate([sine, 1000 + 7 * sine], axis=1)) == (7, 128), "channels count alike"


def test_leads_have_the_sign_of_the_layer_and_end_where_the_last_is_shown(reach):
    pairs = pd.DataFrame(
        [
            ("a", "conv1x1-twice", "emerging", 0.5, 0.4, 0.6, True),
            ("a reach 9", "emerging", "conv1x1-twice", -0.2, -0.3, -0.1, True),
            ("a reach all", "emerging", "conv1x1-twice", 0.3, 0.1, 0.5, True),  # behind
            ("a", "periodic", "conv1x1-twice", -0.1, -0.3, 0.1, False),
            ("a", "emerging", "periodic", -0.9, -1.0, -0.8, True),
            ("a reach 81", "emerging", "conv1x1-twice", -0.1, -0.3, 0.1, False),
        ],
        columns=["dataset", "first", "second", "difference", "low", "high", "separated"],
    )
    found = reach.leads(pairs)
    assert len(found) == 5 and found["lead"].tolist() == [0.5, 0.2, -0.3, 0.1, 0.1]
    ends, every = reach.tables(found, {"a": (7, 70), "b": (1, 1)})
    cells = [cell.strip() for cell in ends.splitlines()[2].strip("|").split("|")]
    assert cells == ["a", "7", "70", "20%; 9", "–; none", "–; none"]
    assert "| +0.500 [+0.400, +0.600] | – " in every and "+0.200 [+0.100, +0.300]" in every
    figure = reach.law_figure(found, {"a": (7, 70), "b": (1, 1)})
    (panel,) = [axes for axes in figure.axes if axes.get_title() == "a" or axes.get_title(loc="left") == "a"]
    first, last = (line for line in panel.lines if line.get_linestyle() in ("--", ":"))
    assert 1 < first.get_xdata()[0] < 2, "7 samples lie between 6 and 18"
    assert 3 < last.get_xdata()[0] < 4, "70 samples lie between 54 and 162"


@pytest.fixture(scope="module")
def order(load_script):
    return load_script("extensions/order_loss.py")


def test_the_loss_by_permuted_columns_is_of_pairs_of_repetitions_that_passed_their_audit(order):
    columns = ["dataset", "layer", "repetition", "nats_per_dim", "status", "audit"]
    rows = [("glow", "a", number, value, "ok", "passed") for number, value in enumerate([1.0, 2.0, 3.0, 9.0])]
    rows += [("glow permuted", "a", number, 1.5 + 0.1 * number + number, "ok", "passed") for number in range(3)]
    rows += [("glow permuted", "a", 3, -5.0, "ok", "failed"), ("glow", "b", 0, 1.0, "ok", "passed")]
    lines = order.table(pd.DataFrame(rows, columns=columns)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    half = 4.302653 * 0.1 / np.sqrt(3)
    assert cells[2] == ["a", f"2.00, +0.600 [{0.6 - half:+.3f}, {0.6 + half:+.3f}]"] and cells[3] == ["b", "–"]


def test_the_loss_in_the_page_is_that_of_the_committed_report(order):
    """Print it by `python docs/extensions/order_loss.py` and put it into the page."""
    page = (ROOT / "docs" / "findings" / "order.md").read_text()
    assert order.table(load_results(order.REPORT)) in page
