"""Strict YAML: the types of YAML 1.2, faults with their places, and refusal of harmful input."""

import pytest

from harness.core.errors import SuiteError, nearest
from harness.planning.strict_yaml import MAX_BYTES, load, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2.0e-3", 0.002),
        ("-.5E+2", -50.0),
        ("1.", 1.0),
        ("3", 3),
        ("-3", -3),
        ("017", 17),
        ("0x1F", "0x1F"),
        ("10:30", "10:30"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("2020-01-01", "2020-01-01"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1e-3'", "1e-3"),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    parsed = load(f"key: {text}\n", "x").value["key"]
    assert parsed == value and type(parsed) is type(value)


def test_positions_of_keys_and_values():
    document = load("a: 1\nb:\n  c: [x, {d: 2}]\n", "x")
    assert document.position(("b", "c"), at_key=True) == (3, 3)
    assert document.position(("b", "c", 1, "d")) == (3, 14)
    assert document.position(("b", "absent", "deeper")) == (3, 3)  # the nearest enclosing part


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "'a' stands twice, first in line 1"),
        ("a: !!python/object/apply:os.system [echo]\n", 1, 4, "!!python/object/apply:os.system is not allowed"),
        ("a: !custom 3\n", 1, 4, "!custom is not allowed"),
        ("a: !!timestamp 2020-01-01\n", 1, 4, "!!timestamp is not allowed"),
        ("a: !!set {b: null}\n", 1, 4, "!!set is not allowed"),
        ("a: !!str {b: 1}\n", 1, 4, "!!str is not allowed here"),
        ("a: !!int x\n", 1, 4, "!!int is not allowed here"),
        ("a: 1e999\n", 1, 4, "not a finite number"),
        ("a: " + "9" * 5000 + "\n", 1, 4, "not a finite number"),
        ("a: [-9223372036854775808]\n", 1, 5, "whole number is at most 2^63 - 1"),
        ("a: " + "b" * 2001 + "\n", 1, 4, "has 2,001 characters; shorten it to 2,000"),
        ('a: "b\\0.py:C"\n', 1, 4, r"control character '\x00'"),
        ('a: "\\ud800\\n"\n', 1, 4, r"control character '\ud800'"),
        ('"a\\e": 1\n', 1, 1, r"control character '\x1b'"),
        ("1: x\n", 1, 1, "the key 1 is not a string"),
        ("? [a, b]\n: x\n", 1, 3, "is not a string"),
        ("a: &a {b: *a}\n", 1, 1, "contains itself"),
        ("a: &a [*a]\n", 1, 1, "contains itself"),
        ("a: {<<: 3}\n", 1, 9, "<< takes a mapping"),
    ],
)
def test_faults_have_a_place(text, line, column, words):
    with pytest.raises(SuiteError) as caught:
        load(text, "x")
    message = str(caught.value)
    assert message.startswith(f"x:{line}:{column}: ") and words in message and "\n" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n", "x: invalid start byte at position 0"),
        (b"a: 1\nb: \x00", "x: special characters are not allowed at position 8"),
        (b"a: [1,\nb", "x:2:2: not valid YAML"),
        (b"a: 1\n\tb: 2", "x:2:1: not valid YAML"),
        (b"a: 1\n---\nb: 2\n", "single document"),
        (b"a: *b\n", "x:1:4: not valid YAML: found undefined alias"),
        (b"[" * 3000, "nested too deeply"),
        (b"#" * (MAX_BYTES + 1), "larger than 500,000 bytes"),
        (b"k:\n" + b" - 1\n" * 20_000, "x:20000:4: more than 20,000 values"),
    ],
)
def test_text_that_cannot_be_parsed_is_one_error(content, words):
    with pytest.raises(SuiteError) as caught:
        load(content, "x")
    assert words in str(caught.value)


def test_exponential_aliases_are_refused_and_merges_stay_small():
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    with pytest.raises(SuiteError, match="more than 20,000 values"):
        load("\n".join(lines), "x")
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))]
    assert load("\n".join(lines), "x").value["a59"] == {"x": 1}


def test_merge_keys_keep_the_first_value_and_its_position():
    document = load("a: &a {xx: 1, y: {z: 2}}\nb: &b {xx: 9, w: 4}\nc:\n  <<: [*a, *b]\n  y: 3\n", "x")
    assert document.value["c"] == {"xx": 1, "y": 3, "w": 4}
    assert document.position(("c", "y")) == (5, 6) and document.position(("c",)) == (4, 3)
    assert document.position(("c", "w"), at_key=True) == (2, 15)  # in the merged mapping


def test_aliases_are_independent_copies():
    value = load("a: &a {x: []}\nb: *a\n", "x").value
    assert value["a"] == value["b"] and value["a"] is not value["b"]


def test_empty_text_has_no_value_and_a_byte_order_mark_is_ignored():
    assert load("", "x").value is None and load("# a remark\n", "x").value is None
    assert load("\ufeffa: 1\n".encode(), "x").value == {"a": 1}


def test_an_unreadable_file_is_a_suite_error(tmp_path):
    with pytest.raises(SuiteError, match="it is a folder"):
        read(tmp_path)
    with pytest.raises(SuiteError, match="cannot be read"):
        read(tmp_path / "absent.yaml")


def test_the_nearest_known_name_is_suggested():
    assert nearest("stepz", ["steps", "width"]) == "did you mean steps?"
    assert nearest("qqq", ["steps", "width"]) == "known: steps, width"
    assert nearest("PARTITON", ["options", "partition"]) == "did you mean partition?", "the other is clearly less alike"
    assert nearest("stepx", ["stepa", "stepb"]) == "did you mean stepb or stepa?", "neither is"
    assert nearest("training.stepz", ["training.steps", "training.decay"]) == "did you mean training.steps?"
    assert nearest("--shpe", ["--help", "--set"]) == "known: --help, --set", "dashes are no likeness"
    assert nearest("10", ["0", "1", "2"]) == "known: 0, 1, 2", "a number is not misspelt"
