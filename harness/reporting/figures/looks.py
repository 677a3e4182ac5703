"""The colour and the marker of each row, which it has in every figure of a report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.planning.plan import Plan

# Okabe & Ito's palette without its yellow, whose seven colours people with any common colour vision tell apart; then
# colours as far as possible, in CIELAB, from all before them.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#332288", "#7A9A01", "#661100"),
    *("#9C755F", "#FF7F7F", "#882255", "#9467bd", "#70C1B3", "#5A5A5A", "#228833", "#A0522D", "#BB5566", "#C44E9F"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Look:
    """The look of a row."""

    colour: str
    marker: str


def looks(plan: Plan) -> dict[str, Look]:
    """Return the look of each row: rows of one layer share its colour, and differ in their markers."""
    layers = {layer.row: layer.layer for trial in plan.trials for layer in trial.layers_under_test}
    families = list(dict.fromkeys(layers.get(row, row) for row in plan.rows))
    members: Counter[str] = Counter()
    found = {}
    for row in plan.rows:
        family = layers.get(row, row)
        number = families.index(family)
        turn = number + number // len(COLOURS) + members[family]
        members[family] += 1
        found[row] = Look(COLOURS[number % len(COLOURS)], MARKERS[turn % len(MARKERS)])
    return found
