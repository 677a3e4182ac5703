"""index.html and the gallery as text; tests/harness/reporting/test_page_browser.py opens them in a browser."""

import base64
import functools
import gzip
import re
import shutil
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from PIL import Image

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.core.records import blank_record
from harness.interface.plan import RunArguments
from harness.reporting.figures.figure_style import render
from harness.reporting.figures.figures import ReportFigure
from harness.reporting.page import gallery
from harness.reporting.page.answer import Answer, Finding
from harness.reporting.page.page import PageSection, anchors, page
from harness.reporting.page.page_facts import TRIAL_COLUMNS, environment_rows, rebuild_lines, trial_rows, without_paths
from harness.reporting.report import ReportedResults, write_report
from harness.reporting.tables.rendering import Table

SURROUNDINGS = {
    "git": {"commit": "c0ffee" * 6 + "c0de", "dirty": False},
    "host": "secret-host",
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
    """Return the page that `write_report` makes, without writing files."""
    results = ReportedResults.of(plan, records, folder)
    return page(results, results.report.sections(small_figures(), []), {"results.csv": "all"}).decode()


@functools.cache
def small_figures():
    """Return a drawing and a picture; the figures of the kinds are tested elsewhere."""
    drawing, picture = Figure(figsize=(2, 1)), Figure(figsize=(2, 1))
    drawing.subplots().plot([1, 2])
    picture.subplots().imshow([[0, 1]])
    return [
        ReportFigure("likelihood", "Likelihood", render(drawing)),
        ReportFigure("samples-digits", "Samples", render(picture)),
    ]


def shown(image):
    """Return the file that an image of the page shows."""
    if "data-svg" in image:
        return gzip.decompress(base64.b64decode(image["data-svg"]))
    return base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))


@pytest.mark.parametrize("kind", ["density_run", "runtime_run", "parameters_run"])
def test_the_page_is_self_contained_and_reproducible(kind, request, write_run):
    plan, records = request.getfixturevalue(kind)
    for record in records:
        record.environment = SURROUNDINGS
    records[0].notes["traceback"] = 'File "/home/someone/layers/base.py"'
    records[1].status, records[1].rows = "error", []
    records[1].reason = "OSError: no /home/someone/data/mnist.gz there"
    folder = write_run(plan, records)
    text = index(plan, records, folder)
    assert index(plan, records, folder) == text
    parts = Parts(text)
    for uri in parts.values("src") + parts.values("href"):
        assert uri.startswith(("data:", "#")) or uri == "results.csv", uri
    assert "@import" not in text and not re.search(r"url\((?!#|%23)", text)
    words = " ".join(parts.text)
    assert "/home" not in text and "secret-host" not in text and str(folder.parent) not in text
    assert "…/mnist.gz" in words and "…/c++" in words and "git checkout c0ffeec0ff" in words
    ids = parts.values("id")
    assert len(ids) == len(set(ids)), "an id is unique on a page"
    referred = re.findall(r'(?:href="|url\()#([\w-]+)', text)
    assert set(referred) <= set(ids)


def test_every_planned_trial_is_listed_with_its_outcome(density_run, write_run):
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
    rows = trial_rows(ReportedResults.of(plan, records[:-3]))
    assert [row.id for row in rows] == [trial.id for trial in plan.trials]
    assert [row.cells[4] for row in rows] == ["audit failed", "diverged"] + ["ok"] * 15 + ["missing"] * 3
    assert rows[0].cells[:4] == ("density", "digits", "conv1x1", "seed 0")
    assert len(TRIAL_COLUMNS) == len(rows[0].cells) == len(rows[-1].cells)
    assert rows[0].cells[5:10] == ("failed", "1", "–", "3.2", "3 of 4") and not rows[0].good
    assert rows[0].reasons[0].startswith("level0/step0/layer: log-det") and "beyond 4096" in rows[0].reasons[1]
    assert rows[1].reasons == ("not finite at step 3",)
    records[0].audit["linear_layers"] = 0
    assert trial_rows(ReportedResults.of(plan, records[:1]))[0].cells[9] == "–", "a flow without linear layers"
    text = index(plan, records[:-3], write_run(plan, records[:-3]))
    assert Parts(text).values("title").count(plan.trials[-1].id) == 1
    assert all(f'title="{trial.id}"' in text for trial in plan.trials)


def test_candidates_that_ended_without_a_fault_are_counted_and_not_listed(density_run, write_run):
    """One ends well, one is unsupported, one fails its audit, and one diverges."""
    plan, records = density_run
    candidates = list(plan.trials[0].prerequisites({}))
    plan = plan.model_copy(update={"trials": (*plan.trials, *candidates)})
    outcomes = (("ok", "passed"), ("unsupported", None), ("ok", "failed"), ("diverged", None))
    for trial, (status, verdict) in zip(candidates, outcomes, strict=True):
        record = blank_record(trial, status, None if status == "ok" else "a reason")
        record.rows = [{"validation": 2.0, "audit": verdict}] if verdict else []
        record.audit = {"verdict": verdict, "reasons": ["no inverse"] * (verdict == "failed")} if verdict else {}
        records.append(record)
    listed = [row.id for row in trial_rows(ReportedResults.of(plan, records))]
    assert listed == [trial.id for trial in plan.trials if trial not in candidates[:2]]
    text = index(plan, records, write_run(plan, records))
    assert "but for 2 candidates of tunings that ended without a fault: results.csv has them" in text


def test_failed_layers_of_a_runtime_trial_and_differing_environments_are_listed(runtime_run):
    plan, records = runtime_run
    rows = trial_rows(ReportedResults.of(plan, records))
    assert [row.cells[1] for row in rows[:2]] == ["spatial, 3×4×4, batch 4", "spatial, 3×8×8, batch 4"]
    assert rows[1].cells[4] == "unsupported" and rows[1].reasons == ("<script>: side 8 is even",)
    expected = plan.model_copy(update={"unsupported": True})
    assert [trial_rows(ReportedResults.of(planned, records))[1].good for planned in (plan, expected)] == [False, True]
    for number, record in enumerate(records):
        record.environment = SURROUNDINGS | {"threads": 1 + (number > 2)}
        record.started, record.seconds = f"2026-01-0{number + 1}T00:00:00+00:00", 1.5
    facts = dict(environment_rows(records))
    assert facts["threads"] == "1 (3 trials); 2 (2 trials)" and facts["versions.torch"] == "2.15.0"
    assert facts["started"] == "2026-01-01 00:00:00 UTC to 2026-01-05 00:00:00 UTC"
    assert facts["time of all trials"] == "8 s" and "host" not in facts
    records[0].environment = {"git": None}
    records[1].environment = SURROUNDINGS | {"git": {"commit": "1" * 40, "dirty": True, "diff": "abc"}}
    assert dict(environment_rows(records))["git.diff"] == "abc"
    assert rebuild_lines(plan, records)[0] == "pip install -e .", "trials of two commits have no common commit"


def test_texts_of_a_suite_are_escaped(hostile_run, write_run):
    text = index(*hostile_run, write_run(*hostile_run))
    parts = Parts(text)
    assert [tag for tag, _ in parts.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attributes in parts.tags for name in attributes)
    words = "".join(parts.text)
    assert words.count("<script>alert(1)</script>") > 10 and "<img src=http" in words
    assert "</title><script>alert(3)</script>" in words


def test_the_command_is_shown_without_folders_of_the_machine():
    settings = {"training.steps": 10, "layers.a b.options.levels": [2, 1]}
    options = RunArguments(settings=settings, layers=["/home/me/a.py:A", "./b.py:B"], seeds=2, unchecked=True)
    assert options.command("/home/me/x.yaml", "cpu") == (
        "python -m harness run x.yaml --profile quick --device cpu --set training.steps=10 "
        "--set 'layers.a b.options.levels=[2, 1]' --layer a.py:A --layer ./b.py:B --seeds 2 --unchecked"
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
        *[("bits/dim, 1/2, flows/glow.py:3, a / b, https://x.org/y/z, ±1/√2, ./layers/layer.py",) * 2],  # unchanged
    ],
)
def test_absolute_paths_become_an_ellipsis(text, expected):
    assert without_paths(text) == expected
    assert without_paths(f"x\n{text}") == f"x\n{expected}"


def test_the_answer_stands_between_the_question_and_the_tables(parameters_run, tmp_path):
    findings = tuple(
        Finding(f"claim {number}", "holds" if number else "<fails>", "good", "as /home/me/x/y says", "It mixes")
        for number in range(5)
    )
    answer = Answer(findings, (("Tuned", ("nothing",)),), ("none", "likelihood"))
    results = ReportedResults.of(*parameters_run, tmp_path)
    sections = [PageSection("It mixes", verdict=findings[0], folded=True)]
    text = page(results, sections, {}, answer, small_figures()).decode()
    order = [text.index(part) for part in ("<h1>", "holds: 4", "<img", "claim 0", "Tuned", "<main>")]
    assert order == sorted(order)
    assert "&lt;fails&gt;: 1" in text and "as …/y says" in text and text.count("<img") == 1
    assert text.count('<a href="#it-mixes">claim') == 5
    assert re.search(r'<details>\n<summary><h2>It mixes</h2> <span class="chip good">&lt;fails&gt;</span>', text)


def test_a_section_may_have_any_heading_facts_tables_and_figures(density_run, tmp_path):
    plan, records = density_run
    table = Table("t", "of /home/me/x/y", ("a", "b"), (("r", "<b>1</b>"), ("s", "2")), bold=frozenset({(1, 1)}))
    results = ReportedResults.of(plan, records, tmp_path)
    figures = tuple(small_figures())
    claim = PageSection("Any permutation: not", (("Claim", "as <i> said"),), (table,), figures)
    text = page(results, [claim, PageSection("Any permutation: not"), PageSection("Trials")], {}).decode()
    parts = Parts(text)
    anchors_found = [item["id"] for tag, item in parts.tags if tag == "section"]
    assert anchors_found == ["any-permutation-not", "any-permutation-not-2", "trials-2", "trials", "origin", "numbers"]
    assert [item["href"] for tag, item in parts.tags if tag == "a"][:3] == [f"#{name}" for name in anchors_found[:3]]
    words = " ".join(parts.text)
    assert "as <i> said" in words and "<b>1</b>" in words and "of …/y" in words
    assert anchors([PageSection("()"), PageSection("–")]) == ["section", "section-2"]
    assert "<strong>2</strong>" in text and text.count("<strong>") == 1
    assert [item["alt"] for tag, item in parts.tags if tag == "img"] == [f"Figure {figure.name}" for figure in figures]
    figures = [ReportFigure(name, name, {}, leading=name == "Ranking") for name in ("Likelihood", "Ranking")]
    made = ReportedResults.of(*density_run, tmp_path).report.sections(figures, [])
    assert [section.heading for section in made] == ["Ranking", "Tables", "Further tables", "Likelihood"]
    assert [section.folded for section in made] == [False, False, True, True]
    assert [table.name for table in made[1].tables] == ["made_up-likelihood"] and len(made[2].tables) == 4


def test_requested_tables_and_all_figures_are_on_the_page(density_run, write_run):
    folder = write_run(*density_run)
    write_report(folder, ["steps", "width"])
    text = (folder / "index.html").read_text(encoding="utf-8")
    words = " ".join(Parts(text).text)
    assert "At equal training steps" in words and "At equal coupling width" in words
    names = {path.stem for path in (folder / "figures").glob("*.png")}
    assert names >= {"ranking", "likelihood", "pareto", "training", "samples-digits", "samples-waveforms"}
    images = {image["alt"]: shown(image) for tag, image in Parts(text).tags if tag == "img"}
    for name in names:
        file = folder / "figures" / f"{name}.svg"
        file = file if file.exists() else file.with_suffix(".png")
        assert images[f"Figure {name}"] == file.read_bytes(), "the page shows the files of figures/"
    text = index(*density_run, write_run(*density_run))
    images = {image["alt"]: image for tag, image in Parts(text).tags if tag == "img"}
    assert images["Figure likelihood"]["class"] == "drawn" and "class" not in images["Figure samples-digits"]


@pytest.mark.parametrize(("sentences", "shown"), [(2, 2), (9, 5)])
def test_a_caption_of_more_than_five_lines_is_folded(density_run, tmp_path, sentences, shown):
    words = [f"Sentence {number} {'x' * 100}." for number in range(sentences)]
    section = PageSection("Tables", tables=(Table("t", " ".join(words), ("layer",), ()),))
    text = page(ReportedResults.of(*density_run, tmp_path), [section], {}).decode()
    [open_part] = re.findall(r'<p class="caption">(Sentence 0.*?)</p>', text)
    folded = re.findall(r'<details class="caption"><summary>.*?</summary>(.*?)</details>', text)
    assert open_part.split(" Sentence")[0] == words[0] and open_part.count("Sentence") == shown
    assert " ".join([open_part, *folded]) == " ".join(words) and len(folded) == (shown < sentences)


def test_the_gallery_links_every_report_with_its_question_and_answer(hostile_run, write_run, no_figures):
    folder = write_run(*hostile_run)
    write_report(folder)
    other = folder.parent / "seen here"
    shutil.copytree(folder, other)
    (other / "figures").mkdir()
    for name, color in {"digits-accounting": "red", "a-likelihood": "blue"}.items():
        Image.new("RGB", (192, 96), color).save(other / "figures" / f"{name}.png", dpi=(96, 96))
    assert main(["gallery", str(folder.parent)]) == 0
    text = (folder.parent / "index.html").read_text()
    assert text.count("Which?") == 2 and "lead, no test" in text
    [image] = re.findall(r"<img[^>]*>", text)
    assert 'src="seen%20here/figures/digits-accounting.png"' in image
    assert 'class="drawn"' in image, "a drawing, which dark mode inverts"
    assert 'href="seen%20here/table.md"' in text and f'href="{folder.name}/index.html">page' in text
    assert "&lt;/title&gt;&lt;script&gt;alert(3)" in text and text.count("<script>") == 1, "its own"


def test_the_gallery_folds_findings_beyond_the_first(density_run, write_run, no_figures, monkeypatch):
    folder = write_run(*density_run)
    write_report(folder)
    monkeypatch.setattr(gallery, "MOST", 1)
    shown, folded = gallery.write_gallery(folder.parent).read_text().split("<details><summary>1 more</summary>")
    assert shown.count('class="chip part"') == folded.count('class="chip part"') == 1


def test_the_suites_asked_for_most_come_first_and_others_by_name(parameters_run, replanned, write_run, no_figures):
    suites = {"a": ("zebra", "quick"), "b": ("alpha", "smoke"), "c": ("alpha", "local"), "d": ("tuned", "quick")}
    for name, (suite, profile) in suites.items():
        named = {"suite": suite, "profile": profile}
        folder = write_run(*replanned(parameters_run, lambda trial, named=named: named, **named))
        write_report(folder)
        folder.rename(folder.parent / name)
    text = gallery.write_gallery(folder.parent).read_text()
    assert re.findall(r'<h2><a href="(\w)/index.html">', text) == ["d", "b", "c", "a"]
    assert gallery.write_gallery(folder.parent).read_text() == text, "the same reports give the same page"
    [profiles] = re.findall(r'<select name="profile">(.*?)</select>', text)
    assert re.findall(r"<option>(\w+)", profiles) == ["quick", "smoke", "local"]


def test_reports_that_cannot_be_read_are_named_and_without_others_an_error(tmp_path, capsys):
    for name, content in {"binary": b"\xff\xfe", "no records": b"# T"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.md").write_bytes(content)
    (tmp_path / "binary" / "plan.json").write_bytes(b"\xff\xfe")
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"none of its folders has a table\.md"):
        gallery.write_gallery(tmp_path)
    left_out = [line.split(":")[1].rpartition("/")[2] for line in capsys.readouterr().err.splitlines()]
    assert left_out == ["binary", "no records"]
