"""Every file of a user or a run may be a pipe, a device, a folder or huge: commands end at once, with one message."""

import os
import re
import shutil
import signal

import pytest

import harness
from harness.cli.parser import main
from harness.core.archive import FILE as ARCHIVE
from harness.core.errors import UserError

SECONDS = 60  # for all commands together; a pipe would take for ever


@pytest.fixture(params=["pipe", "device", "folder", "sparse"])
def special(request):
    """Return a function that replaces a file by something else."""

    def replace(path):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        elif request.param == "folder":
            path.mkdir()
        else:
            path.touch()
            os.truncate(path, 300 << 30)

    def ended(*_):
        raise TimeoutError(f"longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(SECONDS)
    yield replace
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_files_of_a_run(special, parameters_run, write_run, tmp_path, no_figures, capsys):
    plan, records = parameters_run
    folder = write_run(plan, records)
    good = shutil.copytree(folder, tmp_path / "good" / folder.name)
    assert main(["report", str(folder), "--archive"]) == 0
    special(folder / "records" / f"{records[0].id}.json")
    for command in (["status", str(folder)], ["report", str(folder)], ["compare", str(good), str(folder)]):
        assert main(command) in (1, 2), command
    assert records[0].id in capsys.readouterr().out
    for name in ("table.md", "results.csv", "plan.json"):
        special(folder / name)
    for command in ("status", "report", "gallery"):
        assert main([command, str(folder if command != "gallery" else folder.parent)]) == 2, command
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == (2 if command == "gallery" else 1), command  # it also names each folder that it leaves out
    assert main(["compare", str(good), str(folder)]) == 2
    for load in (lambda: harness.load_results(folder), lambda: harness.load_flow(folder, records[0].id)):
        with pytest.raises(UserError):
            load()
    special(folder / ARCHIVE)
    for command in ("status", "report"):
        assert main([command, str(folder / ARCHIVE)]) == 2, command


def test_files_of_a_user(special, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("layer.py", "suite.yaml", "times.json", "data.csv", "data.npz"):
        special(tmp_path / name)
    assert main(["validate", "suite.yaml"]) == 2 and main(["check-layer", "layer.py:Mine"]) == 2
    assert main(["run", "quickstart", "--layer", "layer.py:Mine", "--profile", "smoke", "--out", "out"]) == 2
    suite = "suite: s\nkind: density\nflow: {levels: 1}\nlayers: {conv1x1: {}}\n"
    suite += "profiles: {smoke: {datasets: {d: DATA}}}\n"
    for name, option in (("csv", "columns: [a], length: 8"), ("npz", "shape: [1, 8, 8]")):
        data = f"{{data: {name}, options: {{file: data.{name}, {option}}}}}"
        (tmp_path / "s.yaml").write_text(suite.replace("DATA", data))
        assert main(["run", "s.yaml", "--profile", "smoke", "--out", "out"]) == 3
        assert re.search(
            rf"^{name}: .*(cannot be read \((it|File|This file) |has more than )", capsys.readouterr().err, re.M
        )
