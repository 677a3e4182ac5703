"""Numbers of README, docs and reports are those of committed reports; published ones are those of the suites."""

import re
import subprocess
from functools import cache
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "reports"
COMMITTED = subprocess.run(
    ["git", "ls-files", "reports/*/*"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
FOLDERS = sorted({line.split("/")[1] for line in COMMITTED})  # reports/ has what was run in this clone, too
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), REPORTS / "README.md")
    if not {"_build", "generated", "published.md"} & set(path.relative_to(ROOT).parts)  # compared below
}
ELSEWHERE = (
    "docs/performance/",  # beside the commands that measure
    "docs/developer/",  # likewise
    "docs/concepts/floor.md",  # computed
    "docs/how-to/results.md",  # a threshold
)

LINK = re.compile(r"(?:reports/|\]\(|`)([\w-]+)(?=[/`])")  # in reports/ their folders are named without a path
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
VERSIONED = "FrEIA|nflows|normflows|NumPy|pyro|Python|torch|zuko"
CODE_OR_ADDRESS = r"`[^`]*`|(?<=\])\([^)]*\)"
NOT_QUOTED = re.compile(rf"{CODE_OR_ADDRESS}|\b(?:{VERSIONED}) \d+\.\d+(?:\.\d+)*\b")
NUMBER = re.compile(r"(?<![\w.,])[-+−]?(\d[\d,]*\.\d+(?:e[-+]?\d+)?)(?!\w|\.\d)")
INTERVAL = re.compile(r"([-+]?\d[\d,.]*) \[([-+]?\d[\d,.]*), ([-+]?\d[\d,.]*)\]")  # mean [low, high]
UNIT = re.compile(r"\b(?:nats|bits)\b")


def linked(text):
    return {name for name in LINK.findall(text.replace("](reports/", "reports/")) if name in FOLDERS}


def blocks(page):
    """Return the paragraphs, list items and table rows of a page.

    Each has the reports that it links to, or else those of the last one above it in its section.
    """
    texts = []
    for section in re.split(r"^(?=#+ )", FENCED.sub("", PAGES[page]), flags=re.M):
        reports = set()
        for part in re.split(r"\n\s*\n|\n(?=\s*[-|>] ?)", section):
            reports = linked(part) or reports
            texts.append((" ".join(NOT_QUOTED.sub("", part).split()), reports))
    return texts


def text_of(folder):
    return "\n".join(path.read_text().replace("\\", "") for path in (REPORTS / folder).glob("*.md"))


def size(number):
    return abs(float(number.replace(",", "")))


@cache
def of_pairs(folder):
    """Return mean and bounds of the difference of each pair of layers in comparisons.csv, if it is committed."""
    path = f"reports/{folder}/comparisons.csv"
    if path not in COMMITTED:
        return []
    frame = pd.read_csv(ROOT / path)[["difference", "low", "high"]].abs()
    return list(frame.itertuples(index=False, name=None))


@cache
def shown(folder):
    """Return the decimals of the tables of a report, and those of its pairs of layers."""
    return [*(size(number) for number in NUMBER.findall(text_of(folder))), *chain(*of_pairs(folder))]


@cache
def intervals(folder):
    """Return mean and bounds of each interval of a report, and of the negative mean."""
    intervals = [*(tuple(map(size, interval)) for interval in INTERVAL.findall(text_of(folder))), *of_pairs(folder)]
    return {*intervals, *((mean, high, low) for mean, low, high in intervals)}


def rounds_to(value, number):
    digits = len(number.partition("e")[0].partition(".")[2])
    return abs(value - size(number)) <= 0.5 * 10**-digits + 1e-9


def shows(folder, number):
    """Return whether a report shows this number, or one of more digits that rounds to it."""
    return any(rounds_to(value, number) for value in shown(folder))


def shows_interval(folder, interval):
    return any(all(map(rounds_to, values, interval)) for values in intervals(folder))


@pytest.mark.parametrize("page", PAGES)
def test_numbers_and_intervals_beside_a_link_to_a_report_are_in_its_tables(page):
    """Signs are not compared: a text says "below" where a table has a minus."""
    missing = [
        f"{number} in {text[:80]!r}: not in {', '.join(sorted(reports))}"
        for text, reports in blocks(page)
        for number in NUMBER.findall(text)
        if reports and not any(shows(folder, number) for folder in reports)
    ]
    assert not missing, "\n".join(missing)
    missing = [
        f"{mean} [{low}, {high}]: not in {', '.join(sorted(reports))}"
        for text, reports in blocks(page)
        for mean, low, high in INTERVAL.findall(text)
        if reports and not any(shows_interval(folder, (mean, low, high)) for folder in reports)
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", [name for name in PAGES if not name.startswith(ELSEWHERE)])
def test_likelihoods_are_quoted_with_a_link_to_their_report(page):
    alone = [text[:80] for text, reports in blocks(page) if UNIT.search(text) and NUMBER.search(text) and not reports]
    assert not alone, "\n".join(alone)


def test_a_number_that_no_table_shows_is_found():
    assert sum(len(shown(folder)) for folder in FOLDERS) > 5000
    text, reports = next(block for block in blocks("README.md") if "released sequence code" in block[0])
    numbers = NUMBER.findall(text)
    assert numbers and all(any(shows(folder, number) for folder in reports) for number in numbers)
    longer = [f"{numbers[0]}{digit}" for digit in range(10)]  # one digit more, of which a table has one or two
    assert sum(shows(folder, number) for folder in reports for number in longer) < 5


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
