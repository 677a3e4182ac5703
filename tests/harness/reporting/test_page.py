"""index.html as text; tests/harness/reporting/test_page_browser.py looks at it in a browser."""

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from harness.planning.overrides import run_command
from harness.reporting.figures.figure_style import COLOURS, panels, side_legend, style
from harness.reporting.figures.figures import drawn
from harness.reporting.frame import Results, csv_bytes
from harness.reporting.page.page import anchors, page
from harness.reporting.page.page_facts import (
    environment_rows,
    rebuild_lines,
    records_summary,
    trial_columns,
    trial_rows,
    without_paths,
)
from harness.reporting.page.page_figures import drawing
from harness.reporting.page.page_pictures import figure_pictures, image_picture, matrix_picture
from harness.reporting.page.page_sections import Section, figure_parts, suite_sections
from harness.reporting.report import write_report
from harness.reporting.tables.rendering import Table

SURROUNDINGS = {
    "git": {"commit": "c0ffee" * 6 + "c0de", "dirty": False},
    "host": "a-machine-of-mine",
    "versions": {"torch": "2.15.0"},
    "cpu": "Some Processor",
    "threads": 1,
    "backend": "torch",
    "kernels": {"reason": "no compiler in /opt/somewhere/bin/c++"},
}


class Parts(HTMLParser):
    """Tags with their attributes, ids, links, and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.raw = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.raw = tag in ("script", "style")

    def handle_endtag(self, tag):
        self.raw = False

    def handle_data(self, data):
        if not self.raw:
            self.text.append(data)

    def values(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def index(plan, records, folder):
    """As `write_report` makes it, without the files beside it."""
    results = Results.of(plan, records, folder / "records")
    return page(results, suite_sections(results, results.tables, drawn(results))).decode()


def decoded(uri):
    head, _, content = uri.partition(",")
    return base64.b64decode(content) if head.endswith("base64") else unquote_to_bytes(content)


@pytest.mark.parametrize("kind", ["density_run", "runtime_run", "parameters_run"])
def test_the_page_needs_nothing_and_says_everything_twice_alike(kind, request, write_run):
    plan, records = request.getfixturevalue(kind)
    for record in records:
        record.environment = SURROUNDINGS
    records[0].notes["traceback"] = 'File "/home/someone/layers/base.py"'
    records[1].reason = records[1].status = "error"
    records[1].reason, records[1].rows = "OSError: no /home/someone/data/mnist.gz there", []
    folder = write_run(plan, records)
    text = index(plan, records, folder)
    assert index(plan, records, folder) == text
    parts = Parts(text)
    for uri in parts.values("src") + parts.values("href"):
        assert uri.startswith(("data:", "#")), uri
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    words = " ".join(parts.text)
    downloads = {one["download"]: decoded(one["href"]) for _, one in parts.tags if "download" in one}
    assert len(downloads) == 2
    for where in (text, *(content.decode() for content in downloads.values())):
        assert "/home" not in where and "a-machine-of-mine" not in where and str(folder.parent) not in where
    assert "…/mnist.gz" in words and "…/c++" in words and "git checkout c0ffeec0ff" in words
    written, csv = csv_bytes(Results.of(plan, records).table).decode(), downloads[f"{plan.suite}-results.csv"].decode()
    assert csv.replace("…/mnist.gz", "/home/someone/data/mnist.gz") == written
    kept = json.loads(downloads[f"{plan.suite}-records.json"])["trials"]
    assert [one["id"] for one in kept] == [trial.id for trial in plan.trials]
    ids = parts.values("id")
    assert len(ids) == len(set(ids)), "an id is unique on a page"
    referred = re.findall(r'(?:href="|url\()#([\w-]+)', text)
    assert set(referred) <= set(ids)


def test_every_planned_trial_is_listed_whatever_became_of_it(density_run, write_run):
    plan, records = density_run
    records[0].audit = {
        "verdict": "failed",
        "reasons": ["level0/step0/layer: log-det is 1 nats, but its derivatives give 2"],
        "logdet_error": 1.0,
        "inverse_error": None,
        "condition": 3.25,
        "audited_layers": 3,
        "linear_layers": 4,
        "not_audited": {"level1/step0/layer": "D = 9000 is beyond 4096"},
    }
    records[0].rows[0]["audit"] = "failed"
    records[1].status, records[1].reason, records[1].rows = "diverged", "not finite at step 3", []
    rows = trial_rows(Results.of(plan, records[:-3]))
    assert [row.id for row in rows] == [trial.id for trial in plan.trials]
    assert [row.cells[3] for row in rows] == ["audit failed", "diverged"] + ["ok"] * 15 + ["missing"] * 3
    assert rows[0].cells[4:9] == ("failed", "1", "–", "3.2", "3 of 4") and not rows[0].good
    assert rows[0].reasons[0].startswith("level0/step0/layer: log-det") and "beyond 4096" in rows[0].reasons[1]
    assert rows[1].reasons == ("not finite at step 3",)
    records[0].audit["linear_layers"] = 0
    assert trial_rows(Results.of(plan, records[:1]))[0].cells[8] == "–", "a flow without linear layers"
    text = index(plan, records[:-3], write_run(plan, records[:-3]))
    assert Parts(text).values("title").count(plan.trials[-1].id) == 1
    assert all(f'title="{trial.id}"' in text for trial in plan.trials)


def test_a_runtime_trial_says_which_of_its_layers_failed(runtime_run):
    plan, records = runtime_run
    rows = trial_rows(Results.of(plan, records))
    assert [row.cells[1] for row in rows[:2]] == ["3×4×4, batch 4", "3×8×8, batch 4"]
    assert rows[1].cells[3] == "unsupported" and rows[1].reasons == ("<script>: side 8 is even",)
    expected = plan.model_copy(update={"unsupported": True})
    assert [trial_rows(Results.of(one, records))[1].good for one in (plan, expected)] == [False, True]


def test_nothing_that_a_suite_says_is_markup(hostile_run, write_run):
    text = index(*hostile_run, write_run(*hostile_run))
    parts = Parts(text)
    assert [tag for tag, _ in parts.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attributes in parts.tags for name in attributes)
    words = "".join(parts.text)
    assert words.count("<script>alert(1)</script>") > 10 and "<img src=http" in words
    assert "</title><script>alert(3)</script>" in words


def test_what_surrounds_trials_is_counted_where_it_differs(runtime_run):
    plan, records = runtime_run
    for number, record in enumerate(records):
        record.environment = SURROUNDINGS | {"threads": 1 + (number > 2)}
        record.started, record.seconds = f"2026-01-0{number + 1}T00:00:00+00:00", 1.5
    facts = dict(environment_rows(records))
    assert facts["threads of a trial"] == "1 (3 trials); 2 (2 trials)" and facts["PyTorch"] == "2.15.0"
    assert facts["started"] == "2026-01-01 00:00:00 UTC to 2026-01-05 00:00:00 UTC"
    assert facts["time of all trials"] == "8 s" and "GPU" not in facts
    records[0].environment = {"git": None}
    records[1].environment = SURROUNDINGS | {"git": {"commit": "1" * 40, "dirty": True, "diff": "abc"}}
    assert "source/abc.diff (1 trial)" in dict(environment_rows(records))["commit"].replace(")", "", 1)
    del records[1].environment["git"]["diff"]
    assert dict(environment_rows(records[1:2]))["commit"] == f"{'1' * 40}, other files than source changed"
    assert rebuild_lines(plan, records)[0] == "pip install -e .", "of two commits none can be named"


def test_the_command_is_the_one_that_was_given_without_folders_of_the_machine(tmp_path):
    given = ["training.steps=10", "layers.a b.options.levels=[2, 1]"]
    changes = {"only": ["claim=a"], "settings": given, "layers": ["/home/me/a.py:A", "./b.py:B"], "seeds": 2}
    assert run_command("/home/me/x.yaml", "quick", "cpu", **changes, data=tmp_path) == (
        "python -m harness run x.yaml --profile quick --device cpu --only claim=a --seeds 2 --data ROOT "
        "--set training.steps=10 --set 'layers.a b.options.levels=[2, 1]' --layer a.py:A --layer ./b.py:B"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in '/opt/a b' and /srv/x/y.py:3", "in '…/a b' and …/y.py:3"),
        ("no /home/jane doe/my data/mnist.gz there", "no …/mnist.gz there"),
        ('"/srv/a, b: c/d (1)/e f.npy"', '"…/e f.npy"'),
        ("it fails:/home/me/x/y", "it fails:…/y"),
        ("see file:///etc/z", "see …/z"),
        ("/home/me/a, then flows/glow.py: 2 bits/dim", "…/a, then flows/glow.py: 2 bits/dim"),
        ("of /a/b or /c/d", "of …/b or …/d"),
    ],
)
def test_folders_of_a_machine_become_an_ellipsis(text, expected):
    assert without_paths(text) == expected
    assert json.loads(json.dumps(without_paths(f"x\n{text}"))) == f"x\n{expected}"


def test_what_is_no_folder_of_a_machine_stays():
    kept = "bits/dim, 1/2, flows/glow.py:3, a / b, https://x.org/y/z, ±1/√2, ./mine/layer.py"
    assert without_paths(kept) == kept


def test_texts_of_the_numbers_lose_their_folders_line_by_line(density_run):
    plan, records = density_run
    records[0].notes["samples"] = "none:\n/home/jane doe/x/y.py"
    kept = json.loads(records_summary(plan, records))["trials"]
    assert kept[0]["notes"]["samples"] == "none:\n…/y.py"
    assert kept[1]["curves"]["train"] == records[1].curves["train"]


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(decoded(picture.source))).convert("RGBA")).astype(int)


def test_a_matrix_is_blue_and_orange_on_nothing():
    shown = pixels(matrix_picture("m", np.array([[1.0, 0.0], [-0.25, 0.01]], dtype=np.float16)))
    assert shown[0, 0, 3] == 255 and shown[0, 0, 2] > shown[0, 0, 0], "the largest entry, blue"
    assert shown[0, 1, 3] == 0
    assert shown[1, 0, 0] > shown[1, 0, 2] and abs(shown[1, 0, 3] - 128) < 3, "half as strong at a quarter"
    assert 20 < shown[1, 1, 3] < 32, "a hundredth is still seen"
    assert (pixels(matrix_picture("none", np.zeros((2, 2))))[..., 3] == 0).all()


def test_a_section_may_be_anything_that_has_a_heading(density_run, tmp_path):
    plan, records = density_run
    table = Table("t", "of /home/me/x/y", ("a", "b"), (("r", "<b>1</b>"), ("s", "2")), bold=frozenset({(1, 1)}))
    by_heading = figure_parts(drawn(Results.of(plan, records, tmp_path)), prefix="first-")
    figures = tuple(part for parts in by_heading.values() for part in parts)
    claim = Section("Any permutation: not", (("Claim", "as <i> said"),), (table,), figures)
    sections = [claim, Section("Any permutation: not"), Section("Trials")]
    text = page(Results.of(plan, records), sections).decode()
    parts = Parts(text)
    found = [one["id"] for tag, one in parts.tags if tag == "section"]
    assert found == ["any-permutation-not", "any-permutation-not-2", "trials-2", "trials", "origin", "numbers"]
    assert [one["href"] for tag, one in parts.tags if tag == "a"][:3] == [f"#{name}" for name in found[:3]]
    words = " ".join(parts.text)
    assert "as <i> said" in words and "<b>1</b>" in words and "of …/y" in words
    assert "<strong>2</strong>" in text and text.count("<strong>") == 1
    assert list(by_heading) == ["Likelihood", "Likelihood against cost", "Time of a layer", "Training curves"]
    assert 'id="first-' in text


def test_runtime_curves_come_before_their_tables(runtime_run, density_run, tmp_path):
    for (plan, records), first in ((runtime_run, "Runtime curves"), (density_run, "Tables")):
        results = Results.of(plan, records, tmp_path)
        made = suite_sections(results, [], drawn(results))
        assert made[0].heading == first
    assert anchors([Section("()"), Section("–")]) == ["section", "section-2"]


def test_a_suite_of_several_kinds_lists_each_trial_with_its_suite(density_run):
    plan, records = density_run
    mixed = plan.model_construct(**(dict(plan) | {"kind": "claims"}))
    rows = trial_rows(Results.of(mixed, records))
    assert len(trial_columns(mixed)) == len(rows[0].cells) == len(rows[-1].cells)
    assert rows[0].cells[:6] == ("made_up", "density", "digits", "conv1x1", "0", "ok")


def test_tables_and_figures_asked_for_are_on_the_page(density_run, write_run, tmp_path):
    bench = {"group": "g", "name": "n", "fullname": "n", "stats": {"median": 1e-3, "iqr": 1e-5, "rounds": 5}}
    saved = {"machine_info": {}, "commit_info": {}, "datetime": "2026-01-01T00:00:00", "benchmarks": [bench]}
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(saved))
    folder = write_run(*density_run)
    report = write_report(folder, ["steps", "width"], [file])
    text = (folder / "index.html").read_text(encoding="utf-8")
    words = " ".join(Parts(text).text)
    assert "At equal training steps" in words and "At equal coupling width" in words and "Benchmarks" in words
    names = [path.rpartition("/")[2].removesuffix(".png") for path in report.files if path.endswith(".png")]
    assert names[:4] == ["likelihood", "pareto", "cost", "training"] and names[-1] == "benchmarks"
    assert names[4:6] == ["samples-digits", "samples-waveforms"] and 'id="s1-0-0"' in text
    for number, name in enumerate(names[:4] + names[6:]):
        assert f'id="f{number}-0-0"' in text, name


def test_a_figure_of_pictures_is_shown_panel_by_panel():
    figure, (first, second) = panels(2, 2, 2)
    first.imshow(np.array([[0.0, 1.0]]), cmap="gray", vmin=0, vmax=1)
    second.imshow(np.array([[[1.0, 0, 0]], [[0, 0, 1.0]]]))
    for axes, title in ((first, r"of \$1"), (second, "b")):
        axes.set_title(title, loc="left")
    figure.suptitle("near")
    caption, shown = figure_pictures(figure)
    assert caption == "near" and [one.title for one in shown] == ["of $1", "b"]
    assert np.abs(pixels(shown[0])[0, :, 0] - [0, 255]).max() < 2
    assert (pixels(shown[1])[:, 0] == [[255, 0, 0, 255], [0, 0, 255, 255]]).all()


def test_panels_stand_in_even_rows_and_the_legend_where_there_is_room():
    def arranged(count, width, across):
        with style():
            figure, _ = panels(count, width, 2, columns=across)
            side_legend(figure, [Line2D([], [], label="a name of some length")])
            taken = drawing("f", figure)
        assert len(taken.panels) == count and taken.legend is not None
        return taken.across, taken.beside

    assert arranged(2, 3, 4) == (2, True)
    assert arranged(6, 3, 2) == (2, True)
    assert arranged(3, 3.7, 4) == (3, False)
    assert arranged(4, 3.6, 4) == (2, True), "four would not fit: two and two"


def test_what_is_black_on_paper_is_not_black_in_the_dark():
    with style():
        figure, (axes,) = panels(1, 3, 2)
        axes.plot([1], [1], "o", color=COLOURS[6])
        axes.fill_between([1, 2], [1, 1], [2, 2], color=COLOURS[6], linewidth=0)
        side_legend(figure, [Line2D([], [], color=COLOURS[6], marker="s", label="row")])
        taken = drawing("f", figure)
    for part in (taken.panels[0], taken.legend):
        outside = re.sub(r"<defs>.*?</defs>", "", part)
        painted = [taken.styles[name] for name in re.findall(r'<(?:use|path)[^>]* class="(\w+)"', outside)]
        assert len(painted) == len(re.findall(r"<(?:use|path)\b", outside))
        assert all("fill:" in one for one in painted) and any("fill:var(--c6)" in one for one in painted)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_themselves_with_nothing_between_them(channels):
    images = np.random.default_rng(0).integers(0, 17, (4, channels, 8, 8))
    shown = pixels(image_picture("x", images, 16))
    assert shown.shape == (17, 17, 4)
    assert (shown[8, :, 3] == 0).all() and (shown[:8, :8, 3] == 255).all()
    expected = np.broadcast_to(images[3].transpose(1, 2, 0) / 16 * 255, (8, 8, 3))
    assert np.abs(shown[9:, 9:, :3] - expected).max() < (2 if channels == 1 else 40)


def test_panels_stand_alone_in_colours_of_the_page(density_run, tmp_path):
    plan, records = density_run
    made = drawn(Results.of(plan, records, tmp_path))
    taken = drawing("likelihood", made["likelihood"])
    assert len(taken.panels) == 2 and taken.legend is None
    assert taken.caption == "mean and its 95 % bootstrap interval over seeds; small dots: single seeds"
    for panel, column in zip(taken.panels, plan.columns, strict=True):
        texts = [text.text for text in ET.fromstring(panel).iter("{http://www.w3.org/2000/svg}text")]
        assert column in texts and set(plan.rows) <= set(texts), "each has the labels of the axis that they share"
        assert not re.search(r"#[0-9a-f]{6}\b|style=", panel)
        assert set(re.findall(r'class="(s\w+)"', panel)) <= set(taken.styles)
    assert any("var(--c1)" in style for style in taken.styles.values())
    assert not any("#" in style.replace("url(#", "") for style in taken.styles.values())
    training = drawing("training", made["training"])
    assert "validation" in training.legend and "validation" not in training.panels[0]
