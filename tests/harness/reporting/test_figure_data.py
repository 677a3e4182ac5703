"""The numbers behind a figure are those that it shows."""

import numpy as np
import pytest
from matplotlib.lines import Line2D

from harness.reporting.figures.figure_data import csv_files, figure_data
from harness.reporting.figures.figure_style import Look, layer_axis, panels, row_handles, side_legend


def points(frame, *names, **where):
    """Return the numbers of the rows that have these texts."""
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return [tuple(row) for row in frame[list(names)].to_numpy(dtype=float, na_value=np.nan).tolist()]


@pytest.fixture
def figure():
    figure, (axes, _) = panels(2, 3.0, 3.0)
    axes.set_title(r"a \$ panel")
    axes.set_xlabel("steps")
    axes.set_ylabel("nats")
    return figure


def test_points_have_their_intervals_and_labels(figure):
    axes = figure.axes[0]
    axes.errorbar([1, 2], [3.0, 1 / 3], xerr=0.5, yerr=[[1, 2], [3, 4]], label="one", capsize=3)
    frame = figure_data(figure)
    assert set(frame["series"]) == {"one"} and set(frame["panel"]) == {"a $ panel"}
    assert (frame["x_axis"][0], frame["y_axis"][0]) == ("steps", "nats") and frame["x_label"].isna().all()
    numbers = points(frame, "x", "y", "x_low", "x_high", "y_low", "y_high")
    assert np.allclose(numbers, [(1, 3, 0.5, 1.5, 2, 6), (2, 1 / 3, 1.5, 2.5, 1 / 3 - 2, 1 / 3 + 4)])
    assert b",0.3333333333333333," in csv_files(figure)[".csv"], "all digits, and no end of a bar as a point"
    assert len(frame) == 2


def test_a_legend_names_what_has_no_label_by_colour_and_marker(figure):
    axes = figure.axes[0]
    look = {"first": Look("#0072B2", "o"), "second": Look("#0072B2", "s"), "third": Look("#D55E00", "^")}
    side_legend(figure, row_handles(look))
    axes.plot([1, 2], [5, 6], color="#0072B2", marker="s")
    axes.fill_between([1, 2], [4, 4], [8, 9], color="#D55E00", alpha=0.2)
    axes.scatter([3], [7], color="#123456")
    frame = figure_data(figure)
    assert points(frame, "x", "y", series="second") == [(1, 5), (2, 6)]
    assert points(frame, "x", "y_low", "y_high", series="third") == [(1, 4, 8), (2, 4, 9)]
    assert points(frame, "x", "y", series="") == [(3, 7)]


def test_layers_on_an_axis_and_lines_across_a_panel(figure):
    axes = figure.axes[0]
    layer_axis(axes, ["upper", "lower"])
    axes.plot([10, 20], [0.24, 1.2], linestyle="", marker="o")
    axes.axvline(15, label="a bound")
    axes.axhline(0.5, label="a level")
    frame = figure_data(figure)
    assert points(frame, "x", y_label="upper")[0] == (10,) and points(frame, "x", y_label="lower") == [(20,)]
    assert np.array_equal(points(frame, "x", "y", series="a bound"), [(15, np.nan)], equal_nan=True)
    assert np.array_equal(points(frame, "x", "y", series="a level"), [(np.nan, 0.5)], equal_nan=True)


def test_bars_have_their_heights(figure):
    figure.axes[1].bar(["a", "b"], [2.0, 3.0], label="counts")
    frame = figure_data(figure)
    assert points(frame, "x", "y", series="counts") == [(0, 2), (1, 3)] and list(frame["x_label"]) == ["a", "b"]


def test_pixels_have_no_numbers(figure):
    figure.axes[1].imshow(np.zeros((2, 2)))
    assert csv_files(figure) == {}


def test_a_handle_without_a_marker_names_its_colour(figure):
    figure.legend(handles=[Line2D([], [], color="red", label="floor")])
    figure.axes[0].plot([1], [2], color="red", marker="o")
    assert list(figure_data(figure)["series"]) == ["floor"]
