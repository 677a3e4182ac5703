"""The page for maintainers: its exit codes and the fields of `--json` are those of the program."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import yaml

from harness.checking.check_layer import check_layer
from harness.cli.parser import BROKEN_PIPE, COMMANDS, INTERRUPTED, _print_error, make_parser
from harness.core.errors import DataMissing, Undecided, UserError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "maintainers.md").read_text()


def table(section, title):
    """Return the rows of a table of a section, without its heading."""
    lines = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0].partition(f"| {title} |")[2].splitlines()[2:]
    rows = lines[: [*lines, ""].index("")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_command_and_every_code_is_listed():
    named = [name for row in table("Exit codes", "command") for name in re.findall(r"`([\w-]+)`", row[0])]
    assert sorted(named) == sorted(COMMANDS)
    codes = {UserError.exit_code, DataMissing.exit_code, Undecided.exit_code, INTERRUPTED, BROKEN_PIPE}
    assert {int(row[0]) for row in table("Exit codes", "code")} == codes


def test_the_fields_are_those_of_the_document(capsys):
    fields = {row[0].strip("`"): row[1] for row in table("The document of `--json`", "field")}
    document = check_layer("conv1x1", shapes=[(2, 3)], large=False).document()
    assert list(fields) == list(document)
    for name, inner in (("rules", document["rules"][0]), ("shapes", document["shapes"])):
        assert set(inner) <= set(re.findall(r"`(\w+)`", fields[name])), name
    _print_error("a message")
    assert set(json.loads(capsys.readouterr().out)) == {"verdict", "error"} < fields.keys()


def test_every_file_names_the_repository_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    address = project["urls"]["Repository"]
    about = {"repository-code": address, "version": project["version"], "license": project["license"]}
    assert about.items() <= citation.items()
    assert re.findall(r"git\+(\S+)", PAGE) == [address], "docs/how-to/maintainers.md"


def test_the_workflow_and_the_hook_are_yaml_whose_commands_can_be_parsed():
    workflow, hooks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE, re.S))
    steps = [step["run"] for step in workflow["jobs"]["check-layer"]["steps"] if "run" in step]
    hook = hooks["repos"][0]["hooks"][0]
    for line in (steps[-1], hook["entry"]):
        assert make_parser().parse_args(shlex.split(line)[3:]).command == "check-layer"
    assert re.match(hook["files"], "mylibrary/layers.py") and not hook["pass_filenames"]
    assert len(re.search(r"```yaml\n(.*?)```", PAGE, re.S)[1].splitlines()) <= 12
