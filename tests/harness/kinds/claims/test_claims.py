"""Suites of kind claims: their files, --only, --set, reports, merging and comparison."""

import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.cli.parser import main
from harness.core.errors import SuiteError, UserError
from harness.core.records import read_record, write_record
from harness.kinds.claims.judges import JUDGES
from harness.kinds.claims.report import ClaimsReport
from harness.kinds.density.figures import accounting, singular
from harness.planning.plan import Plan
from harness.planning.settle import load_suite, settle
from harness.reporting.figures.figures import ReportFigure
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import Table

FILE = """\
suite: two
kind: claims
title: Two claims
claims:
  mixes:
    claim: It mixes | all <entries>.
    where: table 1
    test: Look.
    judge: mixing
    suite: parts/mixes.yaml
  blocks:
    claim: Blocks give it.
    where: section 2
    test: Compute.
    judge: block_determinant
    suite: parts/blocks.yaml
"""

PART = """\
suite: {name}
kind: examination
title: {name}
examine: [{examine}]
unsupported: true
layers:
  butterfly: {{flow: {{mixer: none}}, options: {options}}}
profiles:
  quick:
    datasets:
      same: {{shape: {shape}}}
      other: {{shape: {other}}}
"""


def lay_out(folder):
    """Write a suite of two claims whose suites have data sets of the same names; return its path."""
    (folder / "parts").mkdir()
    mixes = {"examine": "mixing, permutations", "options": "{levels: 2}", "shape": [1, 4], "other": [3, 4]}
    blocks = {"examine": "block_determinant", "options": "{levels: 1}", "shape": [1, 2], "other": [1, 4]}
    (folder / "parts" / "mixes.yaml").write_text(PART.format(name="part-mixes", **mixes))
    (folder / "parts" / "blocks.yaml").write_text(PART.format(name="part-blocks", **blocks))
    (folder / "two.yaml").write_text(FILE)
    return folder / "two.yaml"


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lay_out(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the output folder of a run of the two claims."""
    folder = tmp_path_factory.mktemp("claims")
    lay_out(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "two.yaml", "--out", "out", "--jobs", "1"]) == 0
    return folder / "out"


@pytest.fixture
def done(two, finished):
    """Return a copy of the finished run, next to the suite file."""
    shutil.copytree(finished, two.parent / "out")
    return two.parent / "out" / "two"


def test_the_packaged_claims_have_judges_and_every_profile():
    suite, libraries = load_suite("claims"), load_suite("libraries")
    assert {claim.judge for claim in (*suite.claims.values(), *libraries.claims.values())} == set(JUDGES)
    assert suite.profile_names == ["smoke", "quick", "local"]
    plan, trials = settle(suite, "quick", "cpu").plan()
    assert set(trials) == set(plan.trials) and len({trial.id for trial in trials}) == len(trials)
    kinds = [trial.kind for trial in plan.trials]
    assert kinds == sorted(kinds, key=lambda kind: kind == "runtime"), "runtime trials run last"
    assert sum(len(plan.part(section).trials) for section in plan.sections) == len(plan.trials)


def test_only_picks_claims_and_validate_counts_all(two, capsys):
    assert main(["plan", "two.yaml", "--only", "claim=blocks"]) == 0
    out = capsys.readouterr().out
    assert out.count("block_determinant, ") == 2 and "mixing" not in out
    assert main(["plan", "two.yaml", "--only", "claim=block"]) == 2
    assert "did you mean blocks?" in capsys.readouterr().err
    assert main(["plan", "two.yaml", "--only", "layer=butterfly"]) == 2
    assert "claim" in capsys.readouterr().err
    assert main(["validate", "two.yaml"]) == 0
    assert "two.yaml (quick 6 trials)" in capsys.readouterr().out
    assert main(["validate", "two.yaml", "--profile", "smoke"]) == 2
    assert "no profile 'smoke'; it has quick" in capsys.readouterr().err


def test_set_changes_the_suite_of_one_claim(two):
    suite = load_suite("two.yaml")
    change = ["layers.butterfly.options.initialisation=rotation"]
    with pytest.raises(UserError, match=r"--set: changes the suite of one claim; say which: --only claim=NAME"):
        settle(suite, "quick", "cpu", settings=change).plan()
    before, _ = settle(suite, "quick", "cpu").plan()
    after, picked = settle(suite, "quick", "cpu", settings=change, only=["claim=blocks"]).plan()
    changed = {trial.id for trial in after.trials} - {trial.id for trial in before.trials}
    assert changed == {trial.id for trial in picked} and {trial.suite for trial in picked} == {"part-blocks"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("judge: mixing", "judge: mixing\n    verdict: holds", "unknown key 'verdict'"),
        ("suite: parts/mixes.yaml", "suite: ../mixes.yaml", "suite"),
        ("suite: parts/mixes.yaml", "suite: parts/gone.yaml", "no such file"),
        ("suite: parts/mixes.yaml", "suite: two.yaml", "a claim is tested by trials"),
        ("title: Two claims", "title: Two claims\nlayers: {}", "unknown key 'layers'"),
        ("suite: parts/mixes.yaml", "suite: parts/blocks.yaml", "two of the suites that it names have one name"),
    ],
)
def test_faults_of_a_file_of_claims(two, old, new, words):
    two.write_text(FILE.replace(old, new))
    with pytest.raises(SuiteError) as caught:
        load_suite("two.yaml")
    assert words in str(caught.value)


def test_a_run_of_claims_and_its_report(done, capsys):
    text = (done / "table.md").read_text()
    links = re.findall(r"^\| \[(.+?)\]\(#(.+?)\) \| \*\*(.+?)\*\* \|", text, re.MULTILINE)
    assert links == [("mixes", "mixes", "holds in part"), ("blocks", "blocks", "undecided")]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["mixes", "blocks"]
    capsys.readouterr()
    assert main(["report", str(done)]) == 0
    plain = capsys.readouterr().out
    assert "holds in part" in plain and not re.search(r"\\|\*\*|&lt;|\]\(|^[#|]", plain, re.M)
    assert "**Claim.** It mixes \\| all &lt;entries>." in text and "**Verdict.** holds in part." in text
    summary = [line for line in text.splitlines() if line.startswith("| [")]
    assert not any("  " in line for line in summary), "no cell is padded"
    tex = (done / "table.tex").read_text()
    assert tex.count(r"\toprule") == 1 + 3, "the verdicts, and a table for each kind of examination"
    assert "classes" in (done / "results.csv").read_text().splitlines()[0]
    page = (done / "index.html").read_text()
    assert re.findall(r'<section id="(.+?)">', page) == ["mixes", "blocks", "trials", "origin", "numbers"]
    assert "It mixes | all &lt;entries&gt;." in page
    assert main(["run", "two.yaml", "--out", "out", "--jobs", "1"]) == 0
    assert "nothing to run" in capsys.readouterr().out


def test_a_claim_with_missing_or_damaged_trials_is_undecided(done):
    def verdict():
        assert main(["report", str(done)]) == 1
        return re.search(r"\| \[mixes\]\(#mixes\) \| (.+) \|", (done / "table.md").read_text())[1]

    first, second, third, _ = sorted((done / "records").glob("[mp]*"))
    first.write_text("{")
    assert verdict() == "**undecided** | damaged records: 1 of 4 trials"
    second.unlink()
    third.unlink()
    assert verdict() == "**undecided** | not run yet: 2 of 4 trials; damaged records: 1 of 4 trials"
    first.unlink()
    assert verdict() == "**undecided** | not run yet: 3 of 4 trials"


def half(folder, out, start):
    """Copy a run, keeping the records of one claim only."""
    shutil.copytree(folder, out)
    for path in (out / "records").glob("*.json"):
        if path.name.startswith("block") != (start == "block"):
            path.unlink()
    return out


def test_runs_of_single_claims_are_merged(done, tmp_path):
    whole = (done / "table.md").read_text()
    parts = [half(done, tmp_path / name, name) for name in ("block", "mixing")]
    assert main(["report", *map(str, parts), "--out", str(tmp_path / "merged")]) == 0
    assert (tmp_path / "merged" / "two" / "table.md").read_text() == whole
    plan = Plan.load(parts[0])
    for part, name in zip(parts, ("blocks", "mixes"), strict=True):  # as --only leaves them
        suite = next(section.head.suite for section in plan.sections if section.name == name)
        limited = plan.limited([trial for trial in plan.trials if trial.suite == suite])
        assert [section.name for section in limited.sections] == [name]
        limited.save(part)
    assert main(["report", *map(str, parts[::-1]), "--out", str(tmp_path / "limited")]) == 0
    assert (tmp_path / "limited" / "two" / "table.md").read_text() == whole
    plan.save(parts[1])
    section = plan.sections[0].model_copy(update={"claim": "It mixes nothing."})
    plan.model_copy(update={"sections": (section, *plan.sections[1:])}).save(parts[0])
    assert main(["report", *map(str, parts), "--out", str(tmp_path / "again")]) == 2


def test_examinations_are_compared(done, tmp_path, capsys):
    changed = tmp_path / "other"
    shutil.copytree(done, changed)
    assert main(["compare", str(done), str(changed)]) == 0
    out = capsys.readouterr().out
    assert "6 same" not in out and "4 same" in out and "2 not comparable" in out, "two are unsupported in both"
    assert "mixes: mixing, same" in out and "blocks: block_determinant, same" in out
    [path] = (changed / "records").glob("mixing-other-*.json")
    record = read_record(path)
    record.rows[0]["classes"] = 4
    record.rows[0]["density"] += 1e-12
    write_record(path.parent, record)
    assert main(["compare", str(done), str(changed)]) == 1
    out = capsys.readouterr().out
    assert "classes is 3 in A, 4 in B" in out and "density is" not in out


def test_figures_of_accounting_and_singular_values(density_run):
    plan, records = density_run
    density = [record for record in records if record.trial["kind"] == "density"]
    assert accounting.figures(Results.of(plan, density)) == singular.figures(Results.of(plan, density)) == {}
    waves = [record for record in density if record.trial["data"]["label"] == "waveforms"]
    for record in waves[:3]:
        record.curves["true_validation"] = [value + 5 for value in record.curves["validation"]]
        record.curves["smallest_singular_value"] = [0.5, 0.4, 0.3, 0.2]
        record.curves["crossings"] = [0, 2, 2, 3]
        record.rows[0]["floor"] = -5.4
    figure = accounting.figures(Results.of(plan, waves[:3]))["accounting"]
    claimed, true, floor = figure.axes[0].lines
    assert list(true.get_ydata() - claimed.get_ydata()) == pytest.approx([5.0] * 4)
    assert set(floor.get_ydata()) == {-5.4}
    marks = singular.figures(Results.of(plan, waves[:1]))["singular"].axes[0].lines[1]
    assert list(marks.get_xdata()) == [20, 40] and list(marks.get_ydata()) == [0.4, 0.2]
    report = ClaimsReport(ReportedResults.of(plan, waves[:3]))
    report.examined = [SimpleNamespace(section=SimpleNamespace(name="gap"), results=report.results, finding=None)]
    assert report.answer.figures == ("gap-accounting", "gap-singular") and "figures" not in vars(report)


def test_each_section_of_the_page_has_the_figures_of_its_claim(done):
    report = ClaimsReport(ReportedResults.read(done))
    report.examined[1] = replace(
        report.examined[1], section=report.examined[1].section.model_copy(update={"name": "mixes-too"})
    )
    names = ("mixes-likelihood", "mixes-too-training", "mixes-singular", "benchmarks")
    figures = [ReportFigure(name, "heading", {}) for name in names]
    table = Table("t", "asked for", ("a",), (("b",),))
    short, long, beside = report.sections(figures, [table])
    assert short.folded and short.verdict.verdict == report.examined[0].verdict.holds and beside.tables == (table,)
    assert [figure.name for figure in short.figures] == ["mixes-likelihood", "mixes-singular"]
    assert [figure.name for figure in long.figures] == ["mixes-too-training"]
    assert [figure.name for figure in beside.figures] == ["benchmarks"]
    # Two claims may have rows and data sets of the same names.
    plan = Plan.load(done)
    first = plan.trials[0]
    second = type(first).model_validate(first.model_dump() | {"suite": "part-blocks"})
    assert plan.cell(first) != plan.cell(second)
    alone = plan.model_copy(update={"sections": ()})
    assert alone.cell(first) == alone.cell(second), "without sections, renamed suites can be compared"
