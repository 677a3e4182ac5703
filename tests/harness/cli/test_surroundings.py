"""Folders, streams and variables that a command inherits from where it is called."""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.cli.parser import main
from harness.cli.shared.streams import Escaping
from harness.core.isolation.process import LONGEST_FOLDER, _short_temporary_folder

PROJECT = Path(__file__).resolve().parents[3]
NOTEBOOK = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def called(folder, words, **environment):
    """Return the ended process of a command, called in a folder from a notebook."""
    environment = os.environ | NOTEBOOK | {"PYTHONPATH": str(PROJECT)} | environment
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        ("> /dev/full", 2, "standard output cannot be written (No space left on device), and is incomplete\n"),
    ],
)
def test_a_command_finds_its_packages_and_survives_its_streams(tmp_path, redirection, code, error):
    for name in ("layers", "flows", "suites", "csrc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('another package')\n")
    done = called(tmp_path, ["sh", "-c", f'"{sys.executable}" -m harness list suites {redirection}'])
    assert (done.returncode, done.stderr) == (code, error)


@pytest.mark.system
def test_a_run_under_a_notebook_s_backend_and_a_long_temporary_folder(tmp_path):
    long = tmp_path / ("x" * (95 - len(str(tmp_path)) - 1))
    long.mkdir()
    command = [sys.executable, "-m", "harness", "run", "quickstart", "--profile", "smoke", "--only", "layer=conv1x1"]
    done = called(tmp_path, [*command, "--out", "out"], TMPDIR=str(long))
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out" / "quickstart" / "figures").glob("*.png"))


def test_the_socket_of_the_server_is_in_a_folder_of_a_short_name(tmp_path, monkeypatch):
    long = tmp_path / ("x" * LONGEST_FOLDER)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with _short_temporary_folder():
        assert len(tempfile.gettempdir()) <= LONGEST_FOLDER
    assert tempfile.gettempdir() == str(long), "for all other files"
    monkeypatch.setattr(tempfile, "tempdir", "/")
    with _short_temporary_folder():
        assert tempfile.gettempdir() == "/"


def test_standard_output_escapes_control_characters():
    written = io.BytesIO()
    stream = Escaping(written, encoding="utf-8", errors="replace")
    print("a\x1b[31m\tb\u202e\udcff", file=stream, flush=True)
    assert written.getvalue() == b"a\\x1b[31m\tb\\u202e\\udcff\n"


def test_a_message_shows_the_end_after_a_long_name_and_no_control_characters(capsys):
    assert main(["status", f"{'n' * 200}/\x1b[31m" + "m" * 5000]) == 2
    error = capsys.readouterr().err
    assert error.startswith("nnn") and "\\x1b[31m" in error and len(error) < 2100
    assert error.endswith(("give another\n", "its archive\n"))


def test_an_address_space_too_small_for_torch_is_one_message(capsys, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (3 << 30, -1) if which == resource.RLIMIT_AS else (-1, -1))
    assert main(["plan", "quickstart"]) == 2
    assert capsys.readouterr().err.startswith("ulimit -v: ")
