"""Wrong commands and options are answered with the right ones."""

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
        (["replicate", "x", "--drwas", "2"], "--drwas: did you mean --draws?"),
        (["list", "nothing"], "invalid choice: 'nothing'; known: layers, flows, datasets, suites"),
    ],
)
def test_the_nearest_command_or_option_is_suggested(words, hint, capsys):
    assert main(words) == 2
    usage, *_, message = capsys.readouterr().err.splitlines()
    assert hint in message and usage.startswith(f"usage: python -m harness {words[0] if words[0] in COMMANDS else ''}")


def test_nothing_is_suggested_for_what_is_far_from_everything(capsys):
    assert main(["status", "reports", "--xyzzy"]) == 2
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --xyzzy\n")
