"""YAML 1.2 with positions: the subset of YAML that a suite may use, and where in the file each part stands.

PyYAML's own safe loader follows YAML 1.1: `1e-3` is a string, `no` is false, `10:30` is 630, a date is an
object, and of two equal keys the last wins. Here numbers, booleans and null follow YAML 1.2, and duplicate keys,
other tags, numbers beyond 64 bits, texts with control characters and keys that are not strings are refused. Anchors,
aliases and the merge key `<<` work, as far as the document stays small and finite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from harness.core.errors import SuiteError
from harness.core.explain import Place, dotted
from harness.core.files import DATA, open_file
from harness.core.files import SUITE as MAX_BYTES
from harness.core.texts import CONTROL, bounded, control_fault

MAX_NODES = 20_000  # values, also after expansion of aliases: ten lines of them can stand for a billion
MAX_TEXT = 2_000  # characters of one key or value
MAX_INTEGER = (1 << 63) - 1
LONGEST_FAULT, LONGEST_VALUE = 300, 40  # characters of the parser's message, and of a value in one

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_SCALARS = {
    "null": r"(?:null|Null|NULL|~|)\Z",
    "bool": r"(?:true|True|TRUE|false|False|FALSE)\Z",
    "int": r"[-+]?[0-9]+\Z",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z",
    "merge": r"<<\Z",
}


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2 in place of the types of YAML 1.1, and unique keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as the base class)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping, others merged into it; raise if two of its keys are equal, or one is not a string."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        pairs, merges = dict[str, Any](), dict[str, Any]()
        for key, item in node.value:
            text = bounded(str(key.value), LONGEST_VALUE) if isinstance(key, yaml.ScalarNode) else "(a list or mapping)"
            if key.tag not in (f"{_TAG}str", _MERGE):
                raise _refusal(key, f"the key {text} is not a string; put it in quotes if it is a name")
            if key.value in pairs:
                line = _start(pairs[key.value][0])[0]
                raise _refusal(key, f"the key {text!r} stands twice, first in line {line}; keep one")
            pairs[key.value] = key, item
            # Of several merged mappings, the first has precedence.
            for source in reversed(item.value if item.id == "sequence" else [item]) if key.tag == _MERGE else ():
                if not isinstance(source, yaml.MappingNode):
                    raise _refusal(source, "the merge key << takes a mapping or a list of mappings")
                merges |= {inner[0].value: inner for inner in source.value}
        node.value = [pair for pair in (merges | pairs).values() if pair[0].tag != _MERGE]
        return node


for _name, _pattern in _SCALARS.items():
    StrictLoader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), None)


@dataclass
class Document:
    """A parsed document."""

    name: str  # for messages
    value: Any = None  # plain Python: dict, list, str, int, float, bool, None
    of_file: bool = True  # else there are no lines to point at, and messages name the keys
    _values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _keys: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _nodes: int = 0

    def position(self, place: Place, at_key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of a value or of its key, or else of the nearest part around it."""
        if at_key and place in self._keys:
            return self._keys[place]
        around = (place[:length] for length in range(len(place), -1, -1))
        return next((self._values[part] for part in around if part in self._values), (1, 1))

    def located(self, position: tuple[int, int], message: str) -> str:
        """Return a message after its place: file:line:column, or the keys that lead to it."""
        if self.of_file:
            return f"{self.name}:{position[0]}:{position[1]}: {message}"
        places = {position: place for place, position in (*self._values.items(), *self._keys.items())}
        keys = dotted(places.get(position, ()))
        return f"{self.name}: {message if message.startswith(keys) else f'{keys}: {message}'}"

    def built(self, node: yaml.Node, place: Place) -> Any:
        """Return the value of a node, and note the positions in it."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            what = f"more than {MAX_NODES:,} values, those of aliases included, the limit of a suite; split it"
            raise _refusal(node, what)
        self._values[place] = _start(node)  # before a fault inside is located
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            content: dict[str, Any] = {}
            for key, item in node.value:
                name = _scalar(key)
                self._keys[*place, name] = _start(key)
                content[name] = self.built(item, (*place, name))
            return content
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.built(item, (*place, index)) for index, item in enumerate(node.value)]
        return _scalar(node)


def read(path: Path, name: str | None = None) -> Document:
    """Parse a file; one that cannot be read raises SuiteError."""
    name = name or str(path)
    try:
        with open_file(path, DATA) as file:
            return load(file.read(MAX_BYTES + 1), name)
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a YAML file that can") from error


def document_of(value: Mapping[str, Any], name: str) -> Document:
    """Return a mapping as a document: under the same rules, as the text that it is in YAML."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give mappings, lists, texts, finite numbers, booleans and None"
        raise SuiteError(f"{name}: not a suite ({error}); {hint}") from error
    text = CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text)  # YAML takes some of them for line ends
    return load(text, name, of_file=False)


def _plain(value: Any) -> Any:
    """Return a mapping of any class as a dict, and a path as text; raise TypeError for most other objects."""
    return str(value) if isinstance(value, Path) else dict(value)


def load(content: bytes | str, name: str, *, of_file: bool = True) -> Document:
    """Parse one YAML document; an empty one has the value None. The first fault raises a SuiteError with its place."""
    document = Document(name, of_file=of_file)
    if len(content) > MAX_BYTES:
        raise SuiteError(f"{name}: larger than {MAX_BYTES:,} bytes, the limit of a suite file; name one, or split it")
    try:
        node = StrictLoader(content).get_single_node()
        if node is not None:
            document.value = document.built(node, ())
    except yaml.reader.ReaderError as error:
        what = f"{error.reason} at position {error.position}, which YAML text cannot have; is this a suite file?"
        raise SuiteError(f"{name}: {what}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        message = what if isinstance(error, ConstructorError) else f"not valid YAML: {bounded(what, LONGEST_FAULT)}"
        raise SuiteError(document.located(position, message)) from error
    except RecursionError as error:  # also of an alias inside its own anchor
        message = "nested too deeply, or a value that contains itself; a suite has a handful of levels"
        raise SuiteError(document.located((1, 1), message)) from error
    return document


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read the `--set option=value` options of one layer."""
    return {name: value for _, name, value in parse_pairs("--set", texts, "option=value, such as levels=3")}


def parse_pairs(option: str, texts: Sequence[str], form: str) -> list[tuple[str, str, Any]]:
    """Read `name=value` options: the option with its text, the name and the value of each; SuiteError: one is wrong."""
    pairs = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise SuiteError(f"{option} {text}: not of the form {form}")
        pairs.append((f"{option} {text}", name, load(value, f"{option} {text}", of_file=False).value))
    return pairs


def _scalar(node: yaml.Node) -> Any:
    """Return the value of a scalar, as YAML 1.2 reads it."""
    kind, text = node.tag.removeprefix(_TAG), node.value
    plain = isinstance(node, yaml.ScalarNode)
    if not plain or (kind != "str" and (kind not in _SCALARS or not re.match(_SCALARS[kind], text))):
        tag = bounded(kind, LONGEST_VALUE)
        raise _refusal(node, f"the tag !!{tag} is not allowed here: a suite holds plain values; remove the tag")
    if kind in ("null", "bool"):
        return None if kind == "null" else text.lower() == "true"
    shown = bounded(text, LONGEST_VALUE)
    if kind in ("int", "float"):
        number = int(text) if kind == "int" and len(text) < LONGEST_VALUE else float(text)
        if abs(number) <= MAX_INTEGER if kind == "int" else math.isfinite(number):
            return number
        raise _refusal(node, f"{shown} is not a finite number of a setting; a whole number is at most 2^63 - 1")
    if len(text) > MAX_TEXT:
        raise _refusal(node, f"{shown} has {len(text):,} characters; shorten it to {MAX_TEXT:,}")
    if fault := control_fault(text):
        raise _refusal(node, fault)
    return text


def _refusal(node: yaml.Node, message: str) -> ConstructorError:
    return ConstructorError(problem=message, problem_mark=node.start_mark)


def _start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
