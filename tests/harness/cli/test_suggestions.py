"""Wrong commands and options are answered with the right ones, and a shell completes them."""

import subprocess
import sys

import pytest

from harness.cli.parser import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu", "quickstart"], "argument COMMAND: invalid choice: 'rnu'; did you mean run?"),
        (["chek-layer", "butterfly"], "did you mean check-layer?"),
        (["run", "quickstart", "--ony", "layer=butterfly"], "unrecognized arguments: --ony layer=butterfly; --ony:"),
        (["run", "quickstart", "--ony=layer=butterfly"], "; --ony: did you mean --only"),
        (["run", "quickstart", "--jbos", "2"], "; --jbos: did you mean --jobs?"),
        (["run", "quickstart", "--prof", "quick"], "; --prof: did you mean --profile?"),
        (["run", "quickstart", "--profile", "quik"], "argument --profile: invalid choice: 'quik'; did you mean quick?"),
        (["list", "nothing"], "invalid choice: 'nothing'; known: layers, flows, datasets, suites"),
    ],
)
def test_the_nearest_command_or_option_is_suggested(words, hint, capsys):
    assert main(words) == 2
    usage, *_, message = capsys.readouterr().err.splitlines()
    assert hint in message and usage.startswith("usage: python -m harness")


def test_the_usage_is_that_of_the_command(capsys):
    assert main(["status", "reports", "--wach"]) == 2
    usage = capsys.readouterr().err
    assert usage.startswith("usage: python -m harness status") and usage.endswith("--wach: did you mean --watch?\n")


def test_nothing_is_suggested_for_what_is_far_from_everything(capsys):
    assert main(["status", "reports", "--xyzzy"]) == 2
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --xyzzy\n")


def completed(script, *words):
    """Return what bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    call = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; {completer(script)}"
    code = f'. "$0"; {call}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code, str(script)], capture_output=True, text=True, cwd=script.parent)
    return done.stdout.split()


def completer(script):
    """Return the function that bash calls for the program."""
    last = script.read_text().rstrip().splitlines()[-1].split()
    assert last[-1] == "invertbench"
    return last[last.index("-F") + 1]


@pytest.fixture
def script(tmp_path, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    return path


def test_bash_completes_commands_options_values_names_and_files(script):
    (script.parent / "mine.yaml").touch()
    assert set(completed(script, "invertbench", "")) == set(COMMANDS)
    assert completed(script, "invertbench", "run", "quick") == ["quickstart"]
    assert completed(script, "invertbench", "run", "./mi") == ["./mine.yaml"]
    assert completed(script, "invertbench", "run", "quickstart", "--pro") == ["--profile"]
    assert completed(script, "invertbench", "run", "quickstart", "--profile", "s") == ["smoke"]
    assert completed(script, "invertbench", "check-layer", "butter") == ["butterfly"]
    assert "csv" in completed(script, "invertbench", "export", "reports", "--to", "")


def test_zsh_gets_the_same_names(capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#compdef invertbench") and " quickstart " in text and "butterfly " in text


def test_without_shtab_the_message_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install shtab" in capsys.readouterr().err
