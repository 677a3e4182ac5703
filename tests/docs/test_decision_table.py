"""The script behind the first tables of docs/findings/decision.md follows the rules that it states."""

import pandas as pd
import pytest

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
            rows.append(
                (dataset, first, second, sign * lead, sign * lead - 0.1, sign * lead + 0.1, lead != 0, "nats/dim")
            )
    return pd.DataFrame(rows, columns=["dataset", "first", "second", "difference", "low", "high", "separated", "unit"])


def test_a_lead_on_three_of_four_data_sets_is_strong_unless_replications_turned_it(script):
    found = pairs({("emerging", name): ((0.5, 0.4) if name != "d" else (0, 0)) for name in SETS})
    answer = script.answer(found, SETS)
    assert (answer.layers, answer.sure) == ("Emerging convolution", "strong: 3 of 4 data sets")
    assert [(lead.dataset, lead.sign) for lead in answer.leads] == [("a", 1), ("b", 1), ("c", 1), ("d", 0)]
    assert answer.leads[0].text == "+0.500 [+0.400, +0.600] nats/dim"
    assert script.answer(found, SETS, frozenset({"emerging"})).sure == "weak: 3 of 4 data sets"


def test_a_layer_shown_to_be_behind_the_first_is_not_named(script):
    found = pairs({("butterfly", "a"): (0.9, 0.9), ("entry-scale", "a"): (0.8, 0.8), ("woodbury", "a"): (0.2, 0.2)})
    found.loc[len(found)] = ("a", "butterfly", "woodbury", -0.7, -0.9, -0.5, True, "nats/dim")
    assert script.answer(found, SETS).layers == "butterfly or a scale for each entry"


def test_the_tables_of_the_page_are_those_of_the_script(script):
    """Print them by `python docs/extensions/decision_table.py` and put them into the page."""
    page = (script.ROOT / "docs" / "findings" / "decision.md").read_text()
    assert all(table in page for table in script.tables(script.REPORT, script.DRAWS))


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


def test_only_a_verdict_against_a_1x1_convolution_that_turned_on_the_same_family_makes_a_layer_weak(script):
    rows = [
        ("a", "conv1x1", "emerging", "turned"),
        ("a", "butterfly", "conv1x1-twice", "turned"),
        ("b", "cdflow", "conv1x1-twice", "turned"),
        ("a", "periodic", "woodbury", "turned"),
        ("a", "conv1x1", "woodbury", "weakened"),
    ]
    outcomes = pd.DataFrame(rows, columns=["dataset", "first", "second", "outcome"])
    assert script.turned_layers(outcomes, "a") == {"emerging", "butterfly"}
