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


def test_git_state_of_a_checkout_and_elsewhere(tmp_path):
    assert git_state(tmp_path) == (None, "")
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == (None, ""), "no commit yet"
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "m")
    clean, _ = git_state(tmp_path)
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path)[0] == clean | {"dirty": True}
    # A package inside a checkout of another project is not part of that project.
    (tmp_path / "inner").mkdir()
    assert git_state(tmp_path / "inner") == (None, "")


def test_the_diff_to_the_commit_is_recorded(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "one.py").write_text("a = 1\n")
    (tmp_path / "secret.txt").write_text("old\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "m")
    assert git_state(tmp_path)[1] == ""
    (tmp_path / "layers" / "one.py").write_text("a = 2\n")
    (tmp_path / "secret.txt").write_text("new\n")
    diff = git_state(tmp_path)[1]
    assert "-a = 1\n+a = 2\n" in diff
    assert "secret" not in diff, "the source alone"
    assert git_state(tmp_path / "layers")[1] == "", "a package inside a checkout of something else"


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
