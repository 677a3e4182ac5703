"""The texts that commands print about themselves, and how much `run` prints."""

import importlib.resources
import shlex
import sys
from importlib.metadata import version

import pytest

from harness.cli.parser import COMMANDS, PROGRAM, main, make_parser
from harness.core.records import blank_record
from harness.core.settings import FlowSettings, LayerRef
from harness.execution.progress import Reporter
from harness.kinds.parameters.trial import ParametersTrial


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


@pytest.fixture
def trial():
    row = LayerRef(row="conv1x1", layer="conv1x1")
    return ParametersTrial(suite="made_up", profile="quick", label="here", shape=(2, 8), layer=row, flow=FlowSettings())


def test_a_quiet_run_names_failures_alone(trial, capsys):
    reporter = Reporter(2, sys.stderr, None, lambda record: record.status == "ok")
    reporter.update(trial, 0.5, "half")
    reporter.finished(trial, blank_record(trial, "ok", None))
    assert capsys.readouterr() == ("", "")
    reporter.finished(trial, blank_record(trial, "oom", "no memory left"))
    assert capsys.readouterr().err == f"[2/2] {trial.slug}: oom: no memory left\n"
