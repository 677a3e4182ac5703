"""docs/findings/published.md has a line for each published value, as its script makes it from the committed reports."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
COUNTS = {"Images": 24, "Permuted images": 12, "Galaxies": 5, "Waveforms": 20, "Parameters of the waveform models": 5}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    return importlib.import_module("published")


def test_the_page_is_what_its_script_makes(script):
    assert (DOCS / "findings" / "published.md").read_text() == "\n".join(script.page()) + "\n"


def test_every_published_value_has_a_line():
    sections = (DOCS / "findings" / "published.md").read_text().split("\n## ")[1:]
    assert {text.split("\n")[0]: len(re.findall(r"^\| (?!data )", text, re.M)) for text in sections} == COUNTS


def test_values_keep_their_published_digits(script):
    assert [script.shown(value) for value in (-6.4, -9.623, 3.35, 36032)] == ["-6.40", "-9.623", "3.35", "36,032"]
