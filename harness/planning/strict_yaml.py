"""YAML 1.2 with positions: the subset of YAML that a suite may use, and where in the file each part stands.

PyYAML's own safe loader follows YAML 1.1: `1e-3` is a string, `no` is false, `10:30` is 630, a date is an
object, and of two equal keys the last wins. Here numbers, booleans and null follow the core schema of YAML 1.2,
and duplicate keys, tags outside that schema, numbers that are not finite or beyond 64 bits, texts with control
characters and keys that are not strings are refused. Anchors, aliases and the merge key `<<` work, as far as the
document stays small and finite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.core.errors import SuiteError
from harness.core.explain import Place, dotted
from harness.core.files import DATA, open_file
from harness.core.files import SUITE as MAX_BYTES
from harness.core.texts import CONTROL, control_fault

MAX_NODES = 20_000  # values, also after expansion of aliases: ten lines of them can stand for a billion
MAX_TEXT = 2_000  # characters of one key or value
MAX_INTEGER = (1 << 63) - 1

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"(?:null|Null|NULL|~|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": re.compile(  # also as JSON has numbers that are not finite
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|-?Infinity|NaN)\Z"
    ),
}


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the core schema of YAML 1.2 in place of the types of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as the base class)


for _name, _pattern in _SCALARS.items():
    StrictLoader.add_implicit_resolver(_TAG + _name, _pattern, None)
StrictLoader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


class _Refused(yaml.MarkedYAMLError):
    """A part of a YAML document that a suite may not have."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(problem=message, problem_mark=node.start_mark)


@dataclass
class Document:
    """A parsed document."""

    name: str  # for messages
    value: Any = None  # plain Python: dict, list, str, int, float, bool, None
    of_file: bool = True  # else there are no lines to point at, and messages name the keys
    _values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _keys: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def position(self, place: Place) -> tuple[int, int]:
        """Return line and column, from 1, of a value, or of the nearest part around it if there is no such value."""
        around = (place[:length] for length in range(len(place), -1, -1))
        return next((self._values[part] for part in around if part in self._values), (1, 1))

    def key_position(self, place: Place) -> tuple[int, int]:
        """Return line and column, from 1, of the key that names a value, or those of `position` if there is none."""
        return self._keys.get(place) or self.position(place)

    def located(self, position: tuple[int, int], message: str) -> str:
        """Return a message after its place: file:line:column, or the keys that lead to it."""
        if self.of_file:
            return f"{self.name}:{position[0]}:{position[1]}: {message}"
        places = {position: place for place, position in (*self._values.items(), *self._keys.items())}
        keys = dotted(places.get(position, ()))
        return f"{self.name}: {message if message.startswith(keys) else f'{keys}: {message}'}"


def read(path: Path, name: str | None = None) -> Document:
    """Parse a file; one that cannot be read raises SuiteError."""
    name = name or str(path)
    try:
        with open_file(path, DATA) as file:
            return load(file.read(MAX_BYTES + 1), name)
    except IsADirectoryError as error:
        raise SuiteError(f"{name}: a directory; name a YAML file in it") from error
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a YAML file that can") from error


def document_of(value: Mapping[str, Any], name: str) -> Document:
    """Return a mapping as a document: under the same rules, as the text that it is in YAML."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give mappings, lists, texts, numbers, booleans and None"
        raise SuiteError(f"{name}: not a suite ({error}); {hint}") from error
    text = CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text)  # YAML takes some of them for line ends
    return load(text, name, of_file=False)


def _plain(value: Any) -> Any:
    """Return a mapping as a dict, and a path as text, for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a value in it is a {type(value).__name__}")


def load(content: bytes | str, name: str, *, of_file: bool = True) -> Document:
    """Parse one YAML document; an empty one has the value None. The first fault raises a SuiteError with its place."""
    document = Document(name, of_file=of_file)
    if len(content) > MAX_BYTES:
        raise SuiteError(
            f"{name}: larger than {MAX_BYTES:,} bytes, the limit of a suite; name a suite file, or split it"
        )
    try:
        node = StrictLoader(content).get_single_node()
        if node is not None:
            document.value = _Walk(document).value(node, ())
    except yaml.reader.ReaderError as error:
        before = content[: error.position]
        text = before if isinstance(before, str) else before.decode("utf-8", "replace")
        position = text.count("\n") + 1, len(text) - text.rfind("\n")
        of_text = error.encoding == "unicode"
        what = f"the character {chr(error.character)!r}" if of_text else f"the byte 0x{error.character:02x}"
        message = f"{what} is not allowed in YAML text; is this a suite file?"
        raise SuiteError(document.located(position, message)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        message = what if isinstance(error, _Refused) else f"not valid YAML: {_short(what, 300)}"
        raise SuiteError(document.located(position, message)) from error
    except RecursionError as error:  # also of an alias inside its own anchor
        message = "nested too deeply, or a value that contains itself; a suite has a handful of levels"
        raise SuiteError(document.located((1, 1), message)) from error
    return document


class _Walk:
    """One walk over the composed nodes, which builds the value and notes positions."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            what = f"more than {MAX_NODES:,} values, those of aliases included, the limit of a suite; split it"
            raise _Refused(node, what)
        self.document._values[place] = _start(node)  # before a fault inside is located
        value: Any
        if isinstance(node, yaml.ScalarNode):
            value = _scalar(node)
        elif isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            value = self.mapping(node, place)
        elif isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            value = [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        else:
            raise _unknown_tag(node)
        self.document._values[place] = _start(node)  # over that of a mapping merged into this one
        return value

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        """Return own keys over those merged by `<<`; of several mappings behind `<<`, an earlier one has precedence."""
        merges = [item for key, item in node.value if key.tag == _TAG + "merge"]
        result: dict[str, Any] = {}
        for source in reversed([part for item in merges for part in (item.value if item.id == "sequence" else [item])]):
            if not isinstance(source, yaml.MappingNode):
                raise _Refused(source, "the merge key << takes a mapping or a list of mappings")
            result |= self.value(source, place)
        lines: dict[str, int] = {}
        for key_node, item in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                what = f"the key {_shown(key_node)} is not a string; put it in quotes if it is a name"
                raise _Refused(key_node, what)
            if key in lines:
                raise _Refused(key_node, f"the key {key!r} stands twice, first in line {lines[key]}; keep one")
            lines[key] = _start(key_node)[0]
            self.document._keys[*place, key] = _start(key_node)
            result[key] = self.value(item, (*place, key))
        return result


def _scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    if kind in ("str", "merge"):
        if len(text) > MAX_TEXT:
            raise _Refused(node, f"{_shown(node)} has {len(text):,} characters; shorten it to {MAX_TEXT:,}")
        if fault := control_fault(text):
            raise _Refused(node, fault)
        return text
    if kind not in _SCALARS:
        raise _unknown_tag(node)
    if not _SCALARS[kind].match(text):
        raise _Refused(node, f"{_shown(node)!r} cannot be read as {kind}")
    if kind in ("null", "bool"):
        return None if kind == "null" else text.lower() == "true"
    number: int | float
    try:
        if kind == "int":
            number = int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        else:  # 1.2 writes .inf where Python writes inf
            number = float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    except ValueError:  # Python reads no integer of more than 4,300 digits
        number = math.nan
    if abs(number) <= MAX_INTEGER if isinstance(number, int) else math.isfinite(number):
        return number
    rule = "a whole number is at most 2^63 - 1"
    raise _Refused(node, f"{_shown(node)} is not a finite number that a setting could have; {rule}")


def _unknown_tag(node: yaml.Node) -> _Refused:
    tag = _short(node.tag.replace(_TAG, "!!"))
    return _Refused(node, f"the tag {tag} is not allowed: a suite holds plain values; remove the tag")


def _start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _shown(node: yaml.Node) -> str:
    return _short(str(node.value)) if isinstance(node, yaml.ScalarNode) else "(a list or mapping)"


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
