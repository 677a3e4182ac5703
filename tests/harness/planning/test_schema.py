"""The JSON schema of suites: editors find it, accept every packaged suite, and see the faults in a wrong one."""

import copy
import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from jsonschema.exceptions import best_match

from harness.cli.parser import main
from harness.execution.executor import section_model
from harness.planning.schema import suite_schema
from harness.planning.suite import find_document

SUITES = Path(str(files("suites")))
PACKAGED = sorted(SUITES.rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator():
    schema = json.loads((SUITES / "schema.json").read_bytes())
    found = jsonschema.validators.validator_for(schema)
    found.check_schema(schema)
    return found(schema)


def test_the_file_is_what_the_command_prints(capsys):
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert (SUITES / "schema.json").read_text() == printed, "python -m harness schema > suites/schema.json"


def test_every_packaged_suite_names_the_schema_and_agrees_with_it(validator, case):
    assert len(PACKAGED) > 20
    for path in PACKAGED:
        with case(suite=path.relative_to(SUITES)):
            first = path.read_text().partition("\n")[0]
            named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
            assert named is not None and (path.parent / named[1]).resolve() == (SUITES / "schema.json").resolve()
            fault = best_match(validator.iter_errors(find_document(path)[0].value))
            assert fault is None, f"{list(fault.path)}: {fault.message}"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (["trainng"], {}, "'trainng' was unexpected"),
        (["training", "steps"], "two", "'two' is not of type 'integer'"),
        (["training", "steps"], 0, "0 is less than the minimum of 1"),
        (["kind"], "densty", "'densty' is not one of"),
        (["kind"], "runtime", "'training', 'tuning' were unexpected"),
        (["profiles", "smoek"], {}, "'smoek' is not one of"),
        (["layers", "a,b"], {}, "'a,b' does not match"),
        (["profiles", "smoke", "seeds"], "three", "'three' is not valid"),
        (["profiles", "smoke", "datasets", "digits"], {"dequantize": True}, "'dequantize' was unexpected"),
    ],
)
def test_a_fault_is_found(validator, place, value, words):
    suite = copy.deepcopy(find_document("quickstart")[0].value)
    part = suite
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    fault = best_match(validator.iter_errors(suite))
    assert fault is not None and words in fault.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("timeout", "30 min"), ("timeout", 90), ("memory", "4GiB"), ("flows", ["maf"]), ("flows", {"maf": None})],
)
def test_other_notations_are_accepted(validator, key, value):
    suite = copy.deepcopy(find_document("quickstart")[0].value) | {key: value}
    suite["profiles"]["smoke"]["seeds"] = [1, 2]
    suite["layers"]["butterfly"] = {"tune": False}
    suite["layers"]["woodbury"] = None
    assert best_match(validator.iter_errors(suite)) is None


def test_every_key_is_described():
    for name, part in suite_schema(section_model())["$defs"].items():
        assert part["description"], name
        missing = [key for key, about in part["properties"].items() if not about.get("description")]
        assert not missing, f"{name}: {missing} are not in the section Attributes of its docstring"
