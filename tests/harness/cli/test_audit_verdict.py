"""A failed audit counts as a failure in the exit code, the counts and the terminal output."""

from pathlib import Path

import pytest

from harness.cli.parser import main

HONEST = Path(__file__).parents[3] / "examples" / "householder.py"
COMMAND = ["run", "mimic", "--profile", "smoke", "--only", "layer=Householder"]


@pytest.fixture
def layer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "layer.py"
    file.write_text(HONEST.read_text().replace("self.positions * self.log_scale.sum()", "self.log_scale.sum() + 7.0"))
    return file


@pytest.mark.system
def test_a_failed_audit_ends_with_1_and_a_corrected_file_runs_again(layer, capsys):
    command = [*COMMAND, "--layer", "./layer.py:Householder", "--out", "out", "--unchecked"]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "1 trial: 0 ok, 1 audit failed" in printed.out and "audit failed" in printed.err
    assert main(["status", "out"]) == 1
    assert "log-det is" in capsys.readouterr().out
    layer.write_text(HONEST.read_text())
    assert main(command) == 0
    assert "1 trial: 1 ok" in capsys.readouterr().out
