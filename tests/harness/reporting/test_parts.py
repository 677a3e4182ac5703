"""The parts into which a narrow page divides a figure."""

import io

import numpy as np
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from harness.reporting.figures.figure_style import footnotes, layer_axis, noted, panels, render, side_legend, style
from harness.reporting.figures.parts import parts_of

LONG = "a note of many words " * 12


def made(count=3, share_y=True, columns=2, entries=("first", "second one"), pixels=False):
    """Return a rendered figure with layers on its vertical axes, its parts, and its image in CSS pixels."""
    with style():
        figure, grid = panels(count, 2.6, 2.0, share_y=share_y, columns=columns)
        for number, axes in enumerate(grid):
            axes.set_title(f"panel {number}")
            axes.plot([0, 1, 2])
            layer_axis(axes, ["butterfly", "a layer of $ name"])
        side_legend(figure, [Line2D([], [], label=name, marker="o", color="red") for name in entries])
        if pixels:  # the file on the page is then the PNG
            grid[0].imshow([[0, 1]], aspect="auto")
        figure.suptitle(r"costs \$3", x=0.01, ha="left")
        footnotes(figure, [LONG, "short"])
        images = render(figure)
        parts = parts_of(figure, images)
    with Image.open(io.BytesIO(images[".png"])) as image:
        width, height = (round(inches * 96) for inches in figure.get_size_inches())
        return figure, parts, np.asarray(image.convert("L").resize((width, height), Image.Resampling.BOX))


def inked(image, box):
    """Return whether something is drawn in a box, and whether something crosses its edges."""
    x, y = round(box.x), round(box.y)
    part = image[y : y + round(box.height), x : x + round(box.width)] < 200
    return part.any(), part[0].any() or part[-1].any() or part[:, 0].any() or part[:, -1].any()


def test_every_panel_is_whole_and_overlaps_no_other():
    figure, parts, image = made()
    assert len(parts.panels) == 3, "the unused place is no panel"
    for panel in parts.panels:
        assert inked(image, panel.box) == (True, False), "no ink is cut"
    boxes = [panel.box for panel in parts.panels]
    assert boxes[0].height == boxes[1].height and boxes[0].y == boxes[1].y
    assert boxes[0].x + boxes[0].width <= boxes[1].x and boxes[0].y + boxes[0].height <= boxes[2].y
    width, height = figure.get_size_inches() * 96
    assert all(box.x + box.width <= width and box.y + box.height <= height for box in boxes)


def test_a_panel_that_shares_its_axis_gets_the_labels_of_the_first_one_in_its_row():
    parts = made()[1]
    assert [panel.labels is not None for panel in parts.panels] == [False, True, False]
    labels, first = parts.panels[1].labels, parts.panels[0].box
    assert first.x <= labels.x and labels.x + labels.width < first.x + first.width / 2 and labels.width > 60
    assert parts.panels[1].width == pytest.approx(parts.panels[1].box.width + labels.width)
    alone = made(share_y=False)[1]
    assert all(panel.labels is None for panel in alone.panels)


def test_every_entry_of_a_legend_has_its_handle_and_its_text():
    """Where the page shows the PNG; test_page_browser.py looks at entries in an SVG."""
    names = [f"layer {number}" for number in range(17)] + ["a longer name"]
    _, parts, image = made(entries=names, pixels=True)
    assert len(parts.entries) == len(names)
    for entry in parts.entries:
        there, cut = inked(image, entry)
        assert there and not cut, "no ink is cut"
    assert parts.entries[-1].width > parts.entries[0].width
    heights = [entry.y for entry in parts.entries[:12]]
    assert heights == sorted(set(heights)), "one below another"


def test_title_and_notes_are_text_again():
    figure, parts, _ = made()
    assert parts.title == "costs $3"
    assert figure.get_supxlabel().count("\n") > 2
    assert parts.notes == (LONG.strip(), "short") == tuple(noted(figure))
