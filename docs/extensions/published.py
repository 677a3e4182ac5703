"""The page of published values, one line for each, from the suites and the committed reports.

    python docs/extensions/published.py

writes docs/findings/published.md. A value is found in the suites' `published`; what a test of it takes, in the probes
of their profiles `paper`; what was measured on the nearest data, in the tables of committed reports.
"""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
REPORTS = PROJECT / "reports"
PAGE = PROJECT / "docs" / "findings" / "published.md"
PROBES = "paper-probes-2core-epyc"
IMAGENET_STEPS = 500_000 / 35_000  # of training, over those of CIFAR-10, whose images and models have the same size
EMPTY = "–"


@dataclass(frozen=True)
class Column:
    """A column of a published table.

    Attributes:
        name: its key in the suite.
        title: the data in words.
        data: what is needed of them.
        near: the column of the report that has the nearest data measured.
        probe: the column that was probed, and the ratio of the times.
        why: why the two values cannot be compared, or that they can.
    """

    name: str
    title: str
    data: str
    near: str
    probe: tuple[str, float]
    why: str


@dataclass(frozen=True)
class Section:
    """A published table."""

    suite: str
    report: str
    title: str
    text: str
    columns: tuple[Column, ...]


SMALLER = "no: other data, smaller models and fewer steps"
MNIST = "no: smaller models and fewer steps"
SECTIONS = (
    Section(
        "density",
        "density-local-2core-epyc",
        "Images",
        "Bits per dimension. The paper does not say how long it trained, nor whether means are over seeds; the profile "
        "`paper` trains for 100 epochs (ImageNet 50), three seeds. Measured here is one seed; layers were tuned, the "
        "flows of other papers not.",
        (
            Column("mnist", "MNIST", "70,000 images, free", "mnist", ("mnist", 1), MNIST),
            Column("cifar10", "CIFAR-10", "60,000 images, free", "cifar10-subset", ("cifar10", 1), SMALLER),
            Column(
                "imagenet32",
                "ImageNet 32x32",
                "1.3 million images, on registration",
                "tiny-imagenet",
                ("cifar10", IMAGENET_STEPS),
                SMALLER,
            ),
        ),
    ),
    Section(
        "permuted",
        "permuted-local-2core-epyc",
        "Permuted images",
        "Bits per dimension; all entries of an image in one random order, which the paper does not give. The "
        "permutations measured here are others, one for each of three seeds.",
        (
            Column("permuted-mnist", "MNIST", "70,000 images, free", "permuted-mnist", ("permuted-mnist", 1), MNIST),
            Column(
                "permuted-cifar10",
                "CIFAR-10",
                "60,000 images, free",
                "permuted-cifar10-subset",
                ("permuted-cifar10", 1),
                SMALLER,
            ),
            Column(
                "permuted-imagenet32",
                "ImageNet 32x32",
                "1.3 million images, on registration",
                "permuted-tiny-imagenet",
                ("permuted-cifar10", IMAGENET_STEPS),
                SMALLER,
            ),
        ),
    ),
    Section(
        "galaxy",
        "galaxy-local-2core-epyc",
        "Galaxies",
        "Bits per dimension. The published images are 64x64 pixels; those measured here are of another collection, "
        "averaged to 32x32.",
        (Column("galaxy", "galaxies", "10,000 images, free", "galaxy-zoo", ("galaxy", 1), SMALLER),),
    ),
    Section(
        "mimic",
        "mimic-local-2core-epyc",
        "Waveforms",
        "Nats per dimension. **None of these values is a likelihood**: the released code counts the log-determinant of "
        "the 1x1 convolution once for a sequence instead of once for each of its positions, on values of a converter "
        "that are not dequantised ([the claim examined](claims.md)). So no correct implementation reproduces them, "
        "whatever the data. Measured here at the published coupling widths (64, butterfly 16).",
        tuple(
            Column(
                name,
                name,
                "MIMIC-III waveforms, free",
                "icu paper widths",
                ("patient 1", factor),
                "no: the published value is no likelihood",
            )
            for name, factor in (("patient 1", 1), ("patient 2", 1), ("patient 3", 1), ("average", 3))
        ),
    ),
    Section(
        "parameters",
        "parameters-2core-epyc",
        "Parameters of the waveform models",
        "Counted from the built models: no data, no training.",
        (Column("mimic", "waveforms", "none", "mimic", ("", 0), "yes"),),
    ),
)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    found = [section_lines(section) for section in SECTIONS]
    yield "# The published tables, cell by cell"
    yield ""
    yield wrapped(
        f"ButterflyFlow (Meng et al., ICML 2022) prints {sum(len(values(section)) for section in SECTIONS)} measured "
        "values in five tables. A line for each: the published value; what a test of it takes by our profile `paper`, "
        "one seed on one core (data, time and memory, from "
        f"[probes](../../reports/{PROBES}/table.md) of a few training steps); what was measured on the nearest data "
        "that we have, by the profile `local`; whether that passed the audit; whether the two may be compared. **No "
        "`paper` profile has been run to its end**, so no published likelihood is confirmed or refuted here as a "
        "number; [the claims](claims.md) test sentences of the paper instead. Marks are those of the reports: ± "
        "standard error of one seed, [lowest, highest] seed, ≈ an estimate, ‡ still improving, † the audit "
        "failed, § not tuned."
    )
    yield ""
    yield wrapped(
        "Times are for training to the last step; patience may end it earlier, and a GPU is faster. ImageNet's are "
        "those of CIFAR-10, whose images and models have the same size, times the ratio of the steps. Where a model "
        "did not fit into memory, which is marked by *above*, the time is that of smaller batches. This page is "
        "made by `python docs/extensions/published.py`."
    )
    for lines in found:
        yield from lines


def section_lines(section: Section) -> list[str]:
    """Return the lines of one published table."""
    report = f"../../reports/{section.report}/table.md"
    lines = ["", f"## {section.title}", "", wrapped(f"{section.text} [The report]({report})."), ""]
    lines += [
        "| data | row | published | a test takes | measured here | audit | comparable |",
        "|:--|:--|--:|:--|:--|:--|:--|",
    ]
    for column, row, value in values(section):
        here, audit = nearest(section, column.near, row)
        takes = "; ".join(filter(None, (column.data, cost(section.suite, *column.probe, row))))
        comparable = column.why if here != EMPTY else "nothing measured here yet"
        lines.append(f"| {column.title} | {row} | {value} | {takes} | {here} | {audit} | {comparable} |")
    return lines


def wrapped(text: str) -> str:
    """Return a paragraph in lines."""
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)


def values(section: Section) -> list[tuple[Column, str, str]]:
    """Return column, row and published value of each cell."""
    text = yaml.safe_load((PROJECT / "suites" / f"{section.suite}.yaml").read_text())["published"]["values"]
    return [
        (column, row, shown(cells[column.name]))
        for column in section.columns
        for row, cells in text.items()
        if column.name in cells
    ]


def shown(value: float) -> str:
    """Return a published value with its digits: a count, or two decimals and more."""
    digits = max(2, len(str(value).partition(".")[2]))
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def nearest(section: Section, column: str, row: str) -> tuple[str, str]:
    """Return the cell of a report and the verdict of the audit; dashes where it has none."""
    if section.suite == "parameters":
        return count(section.report, row), EMPTY
    for header, lines in tables(section.report):
        places = [place for place, title in enumerate(header) if title.startswith(f"{column}, ")]
        own = [line for line in lines if line[0].split(" ")[0] == row]
        if header[0] == "layer" and own and places:
            unit = header[places[0]].split(", ")[1].split(" ")[0]
            value = re.sub(r" \\\[\d+]$", "", own[0][places[0]])  # a reference to a remark of the report
            return f"{value} {unit}", verdict(section.report, column, row)
    return EMPTY, EMPTY


def count(report: str, row: str) -> str:
    """Return the counted parameters of a waveform model, in the first table of a report, at the published width."""
    header, lines = tables(report)[0]
    (line,) = (line for line in lines if line[0] == row)
    return line[header.index(f"width {line[header.index('at width')]}")]


def tables(report: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return header and rows of the tables of a report."""
    found: list[tuple[list[str], list[list[str]]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", (REPORTS / report / "table.md").read_text(), re.M):
        header, _, *lines = [[cell.strip() for cell in line.strip("|\n").split(" |")] for line in block.splitlines()]
        found.append((header, lines))
    return found


def verdict(report: str, column: str, row: str) -> str:
    """Return the verdicts of the audit of the final trials."""
    with (REPORTS / report / "results.csv").open() as file:
        own = [line for line in csv.DictReader(file) if (line["dataset"], line["layer"]) == (column, row)]
    return ", ".join(
        sorted({line["audit"] for line in own if line["audit"] and line.get("kind", "density") == "density"})
    )


def cost(suite: str, column: str, factor: float, row: str) -> str:
    """Return time and memory of one seed of the profile `paper`, from its probe."""
    if not column:
        return ""
    for _, lines in tables(PROBES):
        for *cell, hours, memory in lines:
            if cell == [suite, column, row]:
                return f"{float(f'{float(hours) * factor:.3g}'):,g} h, {memory}"
    return "not probed"


if __name__ == "__main__":
    PAGE.write_text("\n".join(page()) + "\n")
    sys.stdout.write(f"{PAGE}\n")
