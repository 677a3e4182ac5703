"""The tables of a suite of examinations: computed properties of each layer, one table per property."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.reporting.frame import Results, groups_of, rows_of
from harness.reporting.tables.cells import EMPTY, Notes, failed_cell
from harness.reporting.tables.rendering import Table


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def power(value: float) -> str:
    """Return a number given by its decimal logarithm."""
    return "1" if value > -1e-9 else f"10^{value:,.0f}" if value <= -3 else f"{10**value:.2g}"


def _small(value: float) -> str:
    return f"{value:.1e}"


MEASURES: dict[str, dict[str, tuple[str, Callable[[Any], str]]]] = {
    "mixing": {
        "density": ("nonzero entries of W", _share),
        "classes": ("classes that never mix", str),
        "sizes": ("their entries", str),
        "log10_permutations": ("share of all permutations that keep them", power),
    },
    "permutations": {
        "factors": ("factors, 2k - 1", str),
        "realised": ("random permutations reproduced exactly", str),
        "draws": ("of", str),
        "log10_one_pass": ("at most within reach of k factors", power),
    },
    "block_determinant": {
        "block_size": ("block size C", str),
        "layer_error": ("error of the layer's log-det, nats", _small),
        "blocks_error": ("error of what the blocks' LU factors give, nats", _small),
    },
}
"""Quantity -> measure -> its heading and format."""

CAPTIONS = {
    "mixing": (
        "Which entries can come together, with weights drawn at random: entries of two classes are joined by no "
        "product of such layers."
    ),
    "permutations": "Permutations of D = 2^k entries as butterflies of levels 1, ..., k, ..., 1.",
    "block_determinant": (
        "log|det| of one pair of C x C blocks, in float64 over random weights: the layer's largest error, and the "
        "median error of |det A det D - det B det C|, all that the LU factors of the four blocks give."
    ),
}


def tables(results: Results) -> list[Table]:
    """Return a table per quantity, a row per data set and layer; layers that do not support it are left out."""
    made = []
    for kind, own in groups_of(results.frame, "examine"):
        notes, rows = Notes(), []
        for line in rows_of(own[own["status"] != "unsupported"]):
            if line.status != "ok":
                cells = [failed_cell(line, notes), *[EMPTY] * (len(MEASURES[kind]) - 1)]
            else:
                cells = [show(getattr(line, measure)) for measure, (_, show) in MEASURES[kind].items()]
            rows.append((line.layer, line.dataset, *cells))
        if rows:
            header = ("layer", "on", *(title for title, _ in MEASURES[kind].values()))
            made.append(
                Table(
                    f"{results.plan.suite}-{kind}",
                    CAPTIONS[kind],
                    header,
                    tuple(rows),
                    notes.numbered(),
                    words=frozenset({1}),
                )
            )
    return made
