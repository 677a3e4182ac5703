import getpass
import json
import platform
import subprocess
from pathlib import Path

import torch

from harness.core.provenance.environment import environment, git_state, usable_cores
from harness.execution.outcome import RunProvenance


def git(folder, *arguments):
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_provenance_is_json_without_user_names_and_paths():
    facts = environment("cpu")
    text = json.dumps(facts, allow_nan=False)
    assert facts["versions"]["torch"] == str(torch.__version__)
    assert facts["threads"] == torch.get_num_threads()
    assert facts["cores"] == usable_cores() >= 1
    assert "cuda" not in facts
    words = text.replace('"', " ").split()
    assert platform.node() not in words and getpass.getuser() not in words
    assert str(Path(__file__).parents[4]) not in text


def test_the_state_of_a_checkout_has_the_diff_of_its_source(tmp_path):
    assert git_state(tmp_path) == (None, "")
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == (None, ""), "no commit yet"
    source, other = tmp_path / "layers" / "one.py", tmp_path / "secret.txt"
    source.parent.mkdir()
    source.write_text("a = 1\n")
    other.write_text("old\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "m")
    clean, diff = git_state(tmp_path)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False and diff == ""
    other.write_text("new\n")
    assert git_state(tmp_path) == (clean | {"dirty": True}, "")
    source.write_text("a = 2\n")
    state, diff = git_state(tmp_path)
    assert "-a = 1\n+a = 2\n" in diff and "secret" not in diff and len(state["diff"]) == 16
    assert git_state(source.parent) == (None, ""), "a package inside a checkout of another project is not part of it"


def test_a_run_knows_its_commit():
    """The commit is recorded in a checkout; the host only on request."""
    run = RunProvenance()
    common, diff = run.common, run.diff
    if (Path(__file__).parents[4] / ".git").exists():
        assert len(common["git"]["commit"]) == 40 and ("diff" in common["git"]) == bool(diff)
    assert "host" not in common and RunProvenance(host=True).common["host"] == platform.node()


def test_git_may_be_absent(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == (None, "")
