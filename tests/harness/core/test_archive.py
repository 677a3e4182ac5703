"""Archives of records: read like a folder, the same bytes from the same records, and nothing hostile gets through."""

import io
import shutil
import zipfile
from pathlib import Path

import pytest

from harness.cli.parser import main
from harness.core.archive import DATE, FILE, Archive, archive_bytes, read_records
from harness.core.errors import UserError
from harness.core.records import write_record
from harness.planning.plan import Plan
from harness.reporting.frame import Results

PROJECT = Path(__file__).resolve().parents[3]
REPORT = ("table.md", "table.tex", "results.csv", "plan.json")


@pytest.fixture
def archive(parameters_run, tmp_path):
    """Return (path, plan, records) of an archive."""
    plan, records = parameters_run
    path = tmp_path / FILE
    path.write_bytes(archive_bytes(plan.model_dump_json().encode(), records))
    return path, plan, records


def repacked(path, change):
    """Write the archive with changed members, a mapping from name to content."""
    with zipfile.ZipFile(path) as file:
        members = change({name: file.read(name) for name in file.namelist()})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)


def test_the_same_records_give_the_same_bytes_in_any_order(archive):
    path, plan, records = archive
    assert archive_bytes(plan.model_dump_json().encode(), records[::-1]) == path.read_bytes()
    with zipfile.ZipFile(path) as file:
        assert {entry.date_time for entry in file.infolist()} == {DATE}
    assert Plan.load(path) == plan and list(read_records(path, plan.trials).records.values()) == records


def test_an_archive_is_reported_and_compared_like_the_folder(density_run, write_run, tmp_path, no_figures, capsys):
    folder, out = write_run(*density_run), tmp_path / "out"
    assert main(["report", str(folder), "--archive"]) == 0
    (tmp_path / "committed").mkdir()
    lone = str(shutil.copy(folder / FILE, tmp_path / "committed" / FILE))
    assert main(["report", lone, "--out", str(out)]) == 0
    again = out / folder.name
    assert all((again / name).read_bytes() == (folder / name).read_bytes() for name in REPORT)
    assert [path.name for path in (tmp_path / "committed").iterdir()] == [FILE], "nothing is unpacked beside it"
    assert main(["report", str(again), "--archive"]) == 0
    assert (again / FILE).read_bytes() == (folder / FILE).read_bytes()
    next((again / "records").iterdir()).unlink()
    assert len(Results.read(again).records) == 19, "a run's own records count, not the archive beside them"
    capsys.readouterr()
    assert main(["status", lone]) == 0 and "20 trials: 20 ok" in capsys.readouterr().out
    shutil.copy(folder / "plan.json", tmp_path / "committed")
    for other in (lone, str(tmp_path / "committed")):  # the file, or the folder that holds it without records
        assert main(["compare", str(folder), other, "--other-code"]) == 0
        assert "missing" not in (text := capsys.readouterr().out) and text.count(" same ") > 6 and " worse" not in text
    assert Results.read(tmp_path / "committed").statuses == Results.read(folder).statuses


@pytest.mark.system  # some seconds for each of many
@pytest.mark.parametrize("path", sorted(PROJECT.glob(f"reports/*/{FILE}")), ids=lambda path: path.parent.name)
def test_committed_archives_can_be_read(path):
    results = Results.read(path)
    assert len(results.records) == len(results.plan.trials) and "missing" not in results.statuses.values()
    assert Results.read(path).table["id"].tolist() == Results.read(path.parent).table["id"].tolist(), (
        "as in the results.csv beside it"
    )


def test_archives_and_folders_are_joined(density_run, write_run, tmp_path, no_figures, capsys):
    plan, records = density_run
    half = tmp_path / "half.zip"
    half.write_bytes(archive_bytes(plan.model_dump_json().encode(), records[::2]))
    folder = write_run(plan, records[1::2])
    assert main(["report", str(half), str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "20 trials: 20 ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda members: {"plan.json": members["plan.json"]}, "no item named 'records.jsonl' in the archive"),
        (lambda members: {}, "no item named 'plan.json'"),
        (lambda members: members | {"records.jsonl": members["records.jsonl"] * 2}, "two of its records have one id"),
        (lambda members: members | {"records.jsonl": b"[]"}, "list indices"),
        (lambda members: members | {"records.jsonl": b"[" * 100_000}, "recursion"),
    ],
)
def test_a_foreign_archive_is_a_user_error(archive, change, words):
    path, _, _ = archive
    repacked(path, change)
    with pytest.raises(UserError, match=rf"records\.zip: .*{words}.*; make the archive again: python -m harness repo"):
        read_records(path, [])


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_member_is_read_up_to_the_size_that_it_states(tmp_path, method):
    content, path = io.BytesIO(), tmp_path / FILE
    with zipfile.ZipFile(content, "w", method) as file:
        file.writestr("plan.json", bytes(1 << 20))
        file.writestr("records.jsonl", b"")
    forged = content.getvalue().replace((1 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(forged)
    with pytest.raises(UserError, match="Bad CRC-32"):
        Archive.read(path)


def test_a_damaged_record_of_an_archive_is_named(archive):
    path, plan, _ = archive
    repacked(path, lambda members: {name: text.replace(b'"ok"', b'"fine"', 1) for name, text in members.items()})
    name = min(trial.id for trial in plan.trials)
    stored = read_records(path, plan.trials)
    assert list(stored.damaged) == [name] and len(stored.records) == 5
    assert stored.damaged[name].startswith(
        f"records.zip: not a readable record of {name} (status: the string 'fine' is not one of"
    )


def test_read_records_takes_those_that_exist_in_the_given_order(parameters_run, tmp_path):
    plan, records = parameters_run
    for record in records[:2]:
        write_record(tmp_path / "records", record)
    ids = [record.id for record in records]
    assert list(read_records(tmp_path, plan.trials[::-1]).records) == ids[1::-1]
    (tmp_path / "records" / f"{ids[0]}.json").write_text("{")
    stored = read_records(tmp_path, plan.trials)
    assert list(stored.records) == [ids[1]] and list(stored.damaged) == [ids[0]]
