"""docs/reference/published.md has a line for each published value of the suites, beside values of committed reports."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SUITES = ("density", "permuted", "galaxy", "mimic", "parameters")
SECTIONS = dict(zip(SUITES, (ROOT / "docs" / "reference" / "published.md").read_text().split("\n## ")[1:], strict=True))


@pytest.mark.parametrize("suite", SUITES)
def test_every_published_value_has_a_line_and_every_measured_one_is_in_the_report(suite):
    lines = [line.split(" | ") for line in re.findall(r"^\| (?!data )(.*) \|$", SECTIONS[suite], re.M)]
    values = yaml.safe_load((ROOT / "suites" / f"{suite}.yaml").read_text())["published"]["values"]
    columns = {name for cells in values.values() for name in cells} - {"width"}
    if suite == "parameters":
        columns = {"mimic"}
    published = [(row, cells[name]) for row, cells in values.items() for name in columns & cells.keys()]
    assert sorted((row, float(value.replace(",", ""))) for _, row, value, *_ in lines) == sorted(published)
    report = ROOT / re.search(r"reports/\S+\.md", SECTIONS[suite])[0]
    cells = {
        re.sub(r" \\\[\d+]$", "", cell.strip())  # without a reference to a remark
        for cell in re.findall(r"[^|\n]+", report.read_text())
    }
    assert {re.sub(r" [a-z]+/dim$", "", measured) for _, _, _, _, measured, *_ in lines} - cells <= {"–"}
