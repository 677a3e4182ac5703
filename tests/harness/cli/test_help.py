"""The texts that commands print about themselves, and their suggestions."""

import importlib.resources
import inspect
import shlex
from importlib.metadata import version

import pytest

from harness.cli import list as listing
from harness.cli.parser import COMMANDS, PROGRAM, main, make_parser
from layers import LAYERS, layer_options


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_can_be_parsed(capsys, name):
    assert main([name, "--help"]) == 0
    lines = capsys.readouterr().out.partition("\nexamples:\n")[2].splitlines()
    assert lines
    for line in lines:
        words = shlex.split(line.removeprefix(f"  {PROGRAM} "))
        assert words[0] == name and make_parser().parse_args(words).command == name


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"invertbench {version('invertbench')}\n"


@pytest.mark.parametrize("package", ["layers", "flows", "harness"])
def test_packages_say_that_they_are_typed(package):
    assert (importlib.resources.files(package) / "py.typed").is_file()


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_docstring_of_every_layer_has_the_listed_fields(name):
    fields = listing.docstring_fields(inspect.cleandoc(LAYERS[name].__doc__ or ""))
    for heading in listing.LAYER_FIELDS:
        assert fields.get(heading), f"{name}: the docstring has no {heading}"


def test_a_page_for_each_layer():
    text = listing.layers()
    pages = dict(page.split(":", 1) for page in text.split("\n\n"))
    assert list(pages) == sorted(LAYERS)
    for name, cls in LAYERS.items():
        options = [f"{option.name} = {option.default!r}" for option in layer_options(cls).values()]
        printed = " ".join(pages[name].partition("  options")[2].split())
        assert printed == ("; ".join(options) or "none"), name
    assert "  family     block-diagonal factors\n  source     Monarch (Dao et al., ICML 2022)\n" in pages["monarch"]
    assert "  log-det    D additions for each factor\n" in pages["monarch"]
    assert pages["finc"].endswith("  options    kernel_size = 3")
    assert all(len(line) <= 118 for page in pages.values() for line in page.splitlines()[1:])


def test_a_field_ends_at_the_next_field_or_at_the_end_of_its_paragraph():
    class Layer:
        """A line.

        Family: tests
        Cost:
            forward: one thing
            and another
            inverse: it
        Singular cases: none
        Source: an author (2020)

        Not a field: text.
        Shapes:
            every one
        """

    fields = listing.docstring_fields(inspect.cleandoc(Layer.__doc__))
    assert fields["Family"] == "tests" and fields["forward"] == "one thing and another"
    assert fields["inverse"] == "it" and fields["Source"] == "an author (2020)" and fields["Shapes"] == "every one"


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
