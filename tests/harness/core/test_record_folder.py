"""Records of a run that a command reads again and again."""

import json

from harness.core import archive
from harness.core.archive import RecordFolder
from harness.core.records import blank_record, write_record


def test_a_record_is_parsed_once_until_its_file_changes(tmp_path, density_run, monkeypatch):
    plan, _ = density_run
    first, second = plan.trials[:2]
    for trial in (first, second):
        write_record(tmp_path / "records", blank_record(trial, "error", "one"))
    parsed = []
    read = archive.read_record
    monkeypatch.setattr(archive, "read_record", lambda path, trial=None: parsed.append(path.stem) or read(path, trial))
    folder = RecordFolder(tmp_path)
    assert folder.read(plan.trials) == folder.read(plan.trials) and sorted(parsed) == sorted([first.id, second.id])
    write_record(tmp_path / "records", blank_record(first, "error", "two"))
    assert folder.read(plan.trials).records[first.id].reason == "two" and len(parsed) == 3
    path = tmp_path / "records" / f"{second.id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": "x"}))
    assert second.id in folder.read(plan.trials).damaged, "a record that was good is damaged now"
    path.unlink()
    assert second.id not in {**folder.read(plan.trials).records, **folder.read(plan.trials).damaged}
