import io
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.text import Text

from harness.core.settings import LayerRef
from harness.kinds.density.figures import likelihood, ranking, samples
from harness.kinds.density.figures.samples import mosaic
from harness.kinds.density.figures.training import average, limits
from harness.kinds.runtime.figures.sweeps import figures as sweep_figures
from harness.kinds.runtime.figures.sweeps import varying
from harness.reporting.figures.figure_style import COLOURS, MARKERS, inner_range, looks, panels, side_legend, style
from harness.reporting.figures.figures import drawn, image_files
from harness.reporting.frame import Results


def test_figures_of_a_density_suite_do_not_depend_on_the_matplotlib_style(density_run, write_run):
    results = Results.of(*density_run, write_run(*density_run))
    files = image_files(drawn([results])[0])
    names = {"ranking", "likelihood", "pareto", "training", "samples-waveforms"}
    expected = {f"{name}.{form}" for name in names for form in ("png", "svg")}
    assert set(files) == expected | {"samples-digits.png"}, "images have no SVG"
    for name, data in files.items():
        if name.endswith("png"):
            height, width, _ = imread(io.BytesIO(data)).shape
            assert 300 < width < 4000 and 200 < height < 4000
        else:
            assert b"<svg" in data and b"dc:date" not in data
            assert b"<text" not in data, "letters are paths, as a browser may lack the font"
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        assert image_files(drawn([results])[0]) == files
    for path in (results.folder / "records").glob("*.npz"):
        path.unlink()
    assert samples.figures(results) == {}
    assert all(results.records[trial].arrays for trial in results.of_kind("density")["id"])


def test_a_runtime_suite_has_a_figure_per_sweep(runtime_run, tmp_path, density_run):
    plan, records = runtime_run
    assert set(image_files(drawn([Results.of(plan, records, tmp_path)])[0])) == {
        f"runtime-{sweep}.{form}" for sweep in ("spatial", "batch") for form in ("png", "svg")
    }
    assert image_files(drawn([Results.of(density_run[0], [], tmp_path)])[0]) == {}


def test_every_part_has_its_own_figures_of_the_names_asked_for(runtime_run, parameters_run):
    """A report of claims asks for the figures of many suites at once."""
    parts = [Results.of(*parameters_run), Results.of(*runtime_run)]
    nothing, figures = drawn(parts, ("runtime-batch", "other"))
    assert nothing == [] and [figure.name for figure in figures] == ["runtime-batch"]


def test_runtime_curves_are_medians(runtime_run):
    plan, records = runtime_run
    records[0].rows[3]["drift"] = 0.5  # the second layer's forward on the first shape
    made = sweep_figures(Results.of(plan, records))
    assert list(made) == ["runtime-spatial", "runtime-batch"]
    forward = made["runtime-spatial"].axes[0]
    curves = {line.get_label(): line for line in forward.lines if not line.get_label().startswith("_")}
    assert list(curves) == ["conv1x1", "my_layer & co", "<script>"]
    assert list(curves["my_layer & co"].get_xdata()) == [48, 192, 768], "entries of an event"
    assert list(curves["my_layer & co"].get_ydata()) == [0.5, 1.0, 2.0]
    assert list(curves["<script>"].get_xdata()) == [48, 768], "an unsupported shape has no point"
    hollow = [line for line in forward.lines if line.get_markerfacecolor() == "white"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in hollow] == [([48], [0.5])]
    assert [axes.get_yscale() for axes in made["runtime-spatial"].axes] == ["log"] * 3


def test_the_likelihood_figure_shows_every_seed_and_failed_rows(density_run):
    plan, records = density_run
    records[2].status, records[2].rows = "diverged", []
    for record in records[1:18:6]:  # the second layer on digits
        record.status, record.rows = "oom", []
    figure = likelihood.figures(Results.of(plan, records))["likelihood"]
    digits = figure.axes[0]
    assert [text.get_text() for text in digits.get_yticklabels()] == list(plan.rows)
    assert digits.get_ylim()[0] > digits.get_ylim()[1], "the first layer is on top"
    assert [text.get_text() for text in digits.texts] == ["2.010", "oom", "4.015"]
    dots = [line for line in digits.lines if len(line.get_xdata()) > 1 and line.get_marker() == "."]
    assert [list(np.round(line.get_xdata(), 6)) for line in dots] == [[2.0, 2.01, 2.02], [4.01, 4.02]]
    assert "bits/dim" in digits.get_xlabel() and "nats/dim" in figure.axes[1].get_xlabel()


def test_the_likelihood_figure_explains_its_bars_and_marks(density_run, one_seed):
    plan, records = density_run
    several = likelihood.figures(Results.of(plan, records))["likelihood"]
    bars, dots, tuning = several.get_supxlabel().split("\n")
    assert (bars, dots) == ("bars over seeds: lowest, highest", "small dots: single seeds")
    assert tuning == "Validation chose each layer's settings among 4 candidates."
    records[0].rows[0] |= {"standard_error": 0.35, "best_step": 40, "stopped_early": False}
    single = likelihood.figures(Results.of(*one_seed((plan, records))))["likelihood"]
    bars, mark, _ = single.get_supxlabel().split("\n")
    assert bars == "bars: ± standard error over test examples, of one seed" and mark.startswith("‡ still improving")
    [reach] = single.axes[0].collections[0].get_segments()
    assert list(np.round(reach[:, 0], 6)) == [1.65, 2.35]
    assert [text.get_text() for text in single.axes[0].texts] == ["2.000 ‡", "3.000", "4.000"]


def test_markers_of_failed_audits_are_hollow(density_run):
    plan, records = density_run
    solid = likelihood.figures(Results.of(plan, records))["likelihood"]
    records[0].rows[0]["audit"] = "failed"
    hollow = likelihood.figures(Results.of(plan, records))["likelihood"]
    faces = [sum(line.get_markerfacecolor() == "white" for line in figure.axes[0].lines) for figure in (solid, hollow)]
    assert faces[0] == 0 and faces[1] > 0


def test_a_layer_has_a_colour_and_its_rows_differ_in_their_markers(density_run):
    plan, _ = density_run
    trial = plan.trials[0]
    layers = {"butterfly": "butterfly", "butterfly-twos": "butterfly"} | {f"row {i}": f"layer{i}" for i in range(17)}
    refs = [LayerRef(row=row, layer=layer) for row, layer in layers.items()]
    trials = tuple(trial.model_copy(update={"layer": ref}) for ref in refs)
    chosen = looks(plan.model_copy(update={"rows": tuple(layers), "trials": trials}))
    assert chosen["butterfly"].colour == chosen["butterfly-twos"].colour
    assert chosen["butterfly"].marker != chosen["butterfly-twos"].marker
    assert len({look.colour for look in chosen.values()}) == 18, "no other two share a colour"
    assert len(set(COLOURS)) == len(COLOURS) and len(set(MARKERS)) == len(MARKERS)


def test_a_far_value_does_not_stretch_a_panel_but_is_named_at_its_edge(density_run):
    assert inner_range([2.9, 3.0, 3.1, 3.2, 21.6]) == (2.9, 3.2)
    assert inner_range([1.0, 2.0, 3.0, 9.0]) == (1.0, 9.0), "spread out, without a wide gap"
    assert inner_range([1.0, 50.0]) == (1.0, 50.0), "two values have no middle"
    plan, records = density_run
    rows = (*plan.rows, "far", "near")
    more = [trial for trial in plan.trials[:18] if trial.layer.row == plan.rows[0]]
    for row, value in (("far", 21.6), ("near", 2.5)):
        for trial in more:
            copy = type(trial).model_validate(trial.model_dump() | {"layer": trial.layer.model_dump() | {"row": row}})
            record = replace(records[0], id=copy.id, trial=copy.model_dump(mode="json"))
            record.rows = [records[0].rows[0] | {"bits_per_dim": value}]
            plan, records = plan.model_copy(update={"trials": (*plan.trials, copy)}), [*records, record]
    results = Results.of(plan.model_copy(update={"rows": rows}), records)
    digits = likelihood.figures(results)["likelihood"].axes[0]
    assert digits.get_xlim()[1] < 6
    assert "21.600" in [text.get_text() for text in digits.texts if getattr(text, "arrow_patch", None)]


def shaded(axes):
    """Return the numbers of the rows of a ranking that are shaded."""
    return [round(patch.get_y() + patch.get_height() / 2) for patch in axes.patches]


def test_the_ranking_sorts_by_mean_shades_ties_and_leaves_untuned_data_out(many_seeds):
    plan, records = many_seeds(8)
    figure = ranking.figures(Results.of(plan, records))["ranking"]
    digits, waveforms = figure.axes
    assert [text.get_text() for text in digits.get_yticklabels()] == list(plan.rows)
    assert [text.get_text() for text in waveforms.get_yticklabels()] == ["my_layer & co", "<script>", "conv1x1"]
    assert shaded(digits) == [0] and shaded(waveforms) == [0, 1], "the leaders"
    assert "bootstrap 95 % interval" in figure.get_supxlabel()
    assert ranking.figures(Results.of(*many_seeds(2))) == {}, "no lead has an interval"
    plan, records = many_seeds(3)
    noisy = [record for record in records if record.trial["layer"]["row"] == plan.rows[2]]
    for record in noisy:
        record.rows[0]["bits_per_dim"] = 4.0 + 3 * record.trial["seed"]
    digits = ranking.figures(Results.of(plan, records))["ranking"].axes[0]
    assert [text.get_text() for text in digits.get_yticklabels()] == list(plan.rows)
    assert shaded(digits) == [0, 2]


def test_no_value_of_the_ranking_crosses_the_line_at_zero(many_seeds):
    plan, records = many_seeds(8)
    for record in records:  # a lead far smaller than the interval of its difference
        if record.trial["layer"]["row"] == plan.rows[1]:
            record.rows[0]["bits_per_dim"] -= 0.998
    with style():
        figure = ranking.figures(Results.of(plan, records))["ranking"]
        FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        zero = axes.transData.transform((0, 0))[0]
        boxes = [Text.get_window_extent(text) for text in axes.texts if not text.arrow_patch]
        assert len(boxes) == 3 and all(box.x0 > zero or box.x1 < zero for box in boxes)
        assert all(box.x1 <= axes.get_window_extent().x1 for box in boxes), "the values are inside the panel"


def test_training_curves_average_the_seeds_that_reached_the_step():
    assert average([[(1, 2.0), (2, 4.0)], [(1, 4.0)]]) == [(1, 3.0), (2, 4.0)]
    low, high = limits([[(1, 1000.0), (50, 3.0), (100, 2.0)]])
    assert low < 2.0 and 3.0 < high < 4.0


@pytest.mark.parametrize(
    ("points", "label", "values"),
    [
        ([("3x4x4", 1), ("3x4x4", 8)], "batch size", [1, 8]),
        ([("3x4x4", 1), ("3x4x8", 1), ("3x8x8", 1)], "D, entries of an event", [48, 96, 192]),
        ([("3x8x8", 16), ("1x1000", 16)], "D, entries of an event", [192, 1000]),
    ],
)
def test_the_axis_of_a_sweep_shows_the_varying_dimension(points, label, values):
    positions, text, _ = varying(pd.DataFrame(points, columns=["shape", "batch"]))
    assert text == label and positions == values


@pytest.mark.parametrize("rows", [3, 18, 40])
def test_a_side_legend_fits_the_figure_and_does_not_cover_the_panels(rows):
    with style():
        figure, grid = panels(1, 3.2, 3.0)
        side_legend(figure, [Line2D([], [], label=f"rather-long-row-{row}") for row in range(rows)])
        FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    assert legend.y0 >= 0 and legend.y1 <= figure.bbox.y1 and legend.x1 <= figure.bbox.x1
    assert len(figure.legends[0].get_texts()) == rows
    panel = grid[0].get_window_extent()
    assert panel.width > 1.8 * figure.dpi and panel.x1 < legend.x0


def test_mosaic_places_images_in_reading_order():
    images = np.zeros((30, 3, 16, 16), dtype=np.uint8)
    images[5, 0] = 255  # second row, second column; red
    whole = mosaic(images, 255)
    assert whole.shape == (4 * 17 - 1, 4 * 17 - 1, 3), "at most 4 x 4"
    assert (whole[17:33, 17:33] == [1, 0, 0]).all()
    assert (whole[16] == 1).all(), "a white line between"
    assert mosaic(images[:3, :2], 255).ndim == 2, "two channels are shown in grey"
    many = np.zeros((121, 1, 8, 8), dtype=np.uint8)
    many[15] = 255  # the last of 4 x 4
    whole = mosaic(many, 255)
    assert whole.shape == (35, 35) and (whole[27:, 27:] == 1).all() and (whole[27:, 18:26] == 0).all()


def test_data_sets_whose_labels_are_alike_have_figures_of_their_own(many_seeds, replanned, write_run):
    labels = {"digits": "a b", "waveforms": "a-b"}
    columns = tuple(labels.values())
    run = replanned(many_seeds(1), lambda trial: {"data.label": labels[trial.data.label]}, columns=columns)
    results = Results.read(write_run(*run))
    first, second = samples.figures(results)
    assert second.endswith("-a-b") and first.startswith(f"{second}-") and first not in second
