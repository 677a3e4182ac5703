"""Runs written for other tools, read back as those tools read them."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness.cli.parser import main
from harness.core.archive import archive_bytes
from harness.core.files import slug
from harness.reporting.report import ReportedResults

ROW, RUNTIME = 0, -2  # the first trial, and one of the layers' times


@pytest.fixture
def run(density_run, write_run):
    """Return (folder, plan, records) of a run whose first trial diverged at its last step."""
    plan, records = density_run
    curves = records[ROW].curves | {"seconds": [1.0, 2.0, 3.0, 4.0]}
    curves["validation"] = [*curves["validation"][:3], None]
    ended = {"status": "diverged", "reason": "NaN", "started": "2026-01-01T00:00:00+00:00"}
    records[ROW] = replace(records[ROW], curves=curves, **ended)
    return write_run(plan, records), plan, records


def test_curves_as_csv_have_a_row_for_each_step_and_tables_their_cells(run, capsys):
    folder, plan, records = run
    assert main(["export", str(folder), "--to", "csv"]) == 0
    assert capsys.readouterr().out == f"{folder / 'curves.csv'}\n{folder / 'csv'}\n"
    frame = pd.read_csv(folder / "curves.csv")
    trained = [trial.id for trial in plan.trials if trial.kind == "density"]
    assert list(frame["id"].unique()) == trained and len(frame) == 4 * len(trained)
    for trial in plan.trials[:2]:
        of_trial, curves = frame[frame["id"] == trial.id], records[plan.trials.index(trial)].curves
        assert of_trial["step"].tolist() == curves["step"] and of_trial["train"].tolist() == curves["train"]
        assert of_trial["validation"].dropna().tolist() == [value for value in curves["validation"] if value]
        assert set(of_trial["layer"]) == {trial.layer.row} and set(of_trial["seed"]) == {trial.seed}
    first = frame.iloc[0]
    assert (first["status"], first["seconds"], first["dataset"]) == ("diverged", 1.0, "digits")
    tables = ReportedResults.read(folder).report.tables
    assert len(list((folder / "csv").iterdir())) == len(tables)
    table = pd.read_csv(folder / "csv" / f"table-{slug(tables[0].name)}.csv", dtype=str, keep_default_na=False)
    cells = tuple(tuple(cell.removeprefix("'") for cell in row) for row in table.to_numpy())  # no formula
    assert cells == tables[0].rows


def test_an_archive_is_exported_to_a_folder_of_its_own(run, tmp_path, capsys, monkeypatch):
    folder, plan, records = run
    monkeypatch.chdir(tmp_path)
    Path("mine.zip").write_bytes(archive_bytes((folder / "plan.json").read_bytes(), records))
    assert main(["export", "mine.zip", "--to", "csv"]) == 0
    written = Path("reports/merged") / plan.suite / "curves.csv"
    assert capsys.readouterr().out == f"{written}\n{written.parent / 'csv'}\n"
    main(["export", str(folder), "--to", "csv"])
    assert written.read_bytes() == (folder / "curves.csv").read_bytes()


def test_chosen_rows_and_columns_are_a_table_for_a_paper(run, capsys):
    """Of several tables those that have them; a group of columns is chosen by its name."""
    folder, plan, _ = run
    first, second, *_ = plan.rows
    chosen = ["--rows", first, "--columns", "digits"]
    assert main(["export", str(folder), "--to", "latex", *chosen]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert written == sorted((folder / "latex").iterdir(), key=written.index) and len(written) > 1
    for path in written:
        text = path.read_text()
        assert text.count(r"\begin{tabular}") == 1 and "digits" in text and f"trials {plan.digest}, invertbench" in text
        body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
        assert body.strip().startswith(first) and body.count(r"\\") == 1, "one row"
    assert main(["export", str(folder), "--to", "csv", *chosen]) == 0
    tables = [pd.read_csv(path) for path in (folder / "csv").iterdir()]
    assert len(tables) == len(written) and all(list(table.iloc[:, 0]) == [first] for table in tables)
    capsys.readouterr()
    for form, options, reason in (
        ("latex", ["--rows", "nobody"], f"no table has it; there are {first}, {second}"),
        ("latex", ["--columns", "digit"], "no table has it; there are digits"),
        ("pdf", chosen, "use --to latex or --to csv"),
    ):
        assert main(["export", str(folder), "--to", form, *options]) == 2
        assert reason in capsys.readouterr().err


def test_a_run_without_records_is_an_error(run, capsys):
    folder, _, _ = run
    shutil.rmtree(folder / "records")
    assert main(["export", str(folder), "--to", "csv"]) == 2
    assert f"{folder}: has no records; give" in capsys.readouterr().err
    assert not (folder / "curves.csv").exists()


def test_tensorboard_reads_curves_measures_and_settings(run, capsys):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import metadata

    folder, plan, records = run
    for _ in range(2):  # the second replaces the first
        assert main(["export", str(folder), "--to", "tensorboard"]) == 0
    capsys.readouterr()
    assert {path.name for path in (folder / "tensorboard").iterdir()} == {record.id for record in records}

    def read(number):
        events = reading.EventAccumulator(str(folder / "tensorboard" / plan.trials[number].id))
        events.Reload()
        return events

    events = read(ROW)
    validation, curves = events.Scalars("curves/validation"), records[ROW].curves
    assert [event.step for event in validation] == curves["step"][:3]
    assert [event.value for event in validation] == pytest.approx(curves["validation"][:3])
    assert events.Scalars("curves/train")[2].wall_time == pytest.approx(1767225603.0)
    assert events.Scalars("measures/bits_per_dim")[0].value == records[ROW].rows[0]["bits_per_dim"]
    assert "_hparams_/experiment" not in events.summary_metadata, "it would take its settings for all there are"
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = metadata.parse_session_start_info_plugin_data(content).hparams
    assert settings["training.learning_rate"].number_value == 0.01, "the rate that the tuning chose"
    assert settings["layer.row"].string_value == "conv1x1" and settings["status"].string_value == "diverged"

    tags = read(RUNTIME).Tags()["scalars"]
    assert "measures/conv1x1/forward/median_ms" in tags and not any(tag.startswith("curves/") for tag in tags)


def test_without_tensorboard_the_message_says_how_to_get_it(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["export", str(run[0]), "--to", "tensorboard"]) == 2
    assert "pip install tensorboard" in capsys.readouterr().err
    assert not (run[0] / "tensorboard").exists()


@pytest.mark.system
def test_figures_as_pdf_have_embedded_fonts_no_date_and_are_removed_with_their_records(run, capsys):
    folder, _, _ = run

    def exported(*forms):
        for form in forms:
            assert main(["export", str(folder), "--to", form]) == 0
        return {path.name: path.read_bytes() for form in ("pdf", "csv") for path in (folder / form).glob("*.???")}

    first = exported("pdf", "csv")
    assert capsys.readouterr().out.startswith(f"{folder / 'pdf'}\n")
    assert {"likelihood.pdf", "pareto.pdf", "samples-digits.pdf"} <= first.keys()
    for name, data in first.items():
        if name.endswith(".pdf"):  # whose fonts matplotlib does not compress
            assert data.startswith(b"%PDF") and b"/CreationDate" not in data
            assert b"/Subtype /Type3" not in data and b"/FontFile2" in data, name
    assert b"/Subtype /Image" not in first["likelihood.pdf"], "a drawing is of vectors"
    assert exported("csv") == first
    for path in folder.glob("records/*"):
        if "waveforms" in path.name:
            path.unlink()
    (folder / "pdf" / "notes.txt").write_bytes(b"a file of the user")
    last = exported("pdf", "csv")
    assert first.keys() - last.keys() == {"samples-waveforms.pdf"}
    assert last["samples-digits.pdf"] == first["samples-digits.pdf"], "of equal records"
    assert (folder / "pdf" / "notes.txt").exists()


@pytest.mark.parametrize("form", ["pdf", "csv"])
def test_nothing_is_written_through_a_link(run, form, tmp_path, capsys, no_figures):
    (tmp_path / "elsewhere").mkdir()
    (run[0] / form).symlink_to(tmp_path / "elsewhere")
    assert main(["export", str(run[0]), "--to", form]) == 2
    assert "is a symbolic link" in capsys.readouterr().err and not any((tmp_path / "elsewhere").iterdir())
