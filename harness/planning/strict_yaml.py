"""YAML 1.2 with positions: the subset of YAML that a suite may use, and where in the file each part stands.

PyYAML's own safe loader follows YAML 1.1: `1e-3` is a string, `no` is false, `10:30` is 630, a date is an
object, and of two equal keys the last wins. Here numbers, booleans and null follow the core schema of YAML 1.2,
and duplicate keys, tags outside that schema, numbers that are not finite or beyond 64 bits, texts with control
characters and keys that are not strings are faults. Anchors, aliases and the merge key `<<` work, as far as the
document stays small and finite. Documents beyond the limits below are refused before they are read whole.
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

MAX_NODES = 20_000  # keys and values, also after expansion of aliases: ten lines of them can stand for a billion
MAX_TEXT = 2_000  # characters of one key or value
MAX_INTEGER = (1 << 63) - 1

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"(?:null|Null|NULL|~|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
_NOT_FINITE = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}  # as JSON has them, and YAML
_YAML_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')  # one of them, or a text, which may have such words


class _TooMany(yaml.MarkedYAMLError):
    """The document has more nodes than a suite may have."""


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the core schema of YAML 1.2 in place of the types of YAML 1.1, and a limit of nodes."""

    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; raise _TooMany beyond MAX_NODES."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            problem = f"more than {MAX_NODES:,} keys and values, the limit of a suite; split it into several"
            raise _TooMany(problem=problem, problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as the base class)


for _name, _pattern in _SCALARS.items():
    StrictLoader.add_implicit_resolver(_TAG + _name, _pattern, None)
StrictLoader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


@dataclass(frozen=True, order=True)
class Fault:
    """One fault with its place: 1-based line and column, or line 0 for no place in the file."""

    line: int
    column: int
    message: str


@dataclass
class Document:
    """A parsed document."""

    name: str  # for messages
    value: Any = None  # plain Python: dict, list, str, int, float, bool, None
    faults: list[Fault] = field(default_factory=list)  # of the document as YAML; `value` lacks the faulty parts
    _values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _keys: dict[Place, tuple[int, int]] = field(default_factory=dict)
    of_file: bool = True  # else there are no lines to point at, and messages name the keys

    def position(self, place: Place) -> tuple[int, int]:
        """Return line and column, from 1, of a value, or of the nearest part around it if there is no such value."""
        around = (place[:length] for length in range(len(place), -1, -1))
        return next((self._values[part] for part in around if part in self._values), (1, 1))

    def key_position(self, place: Place) -> tuple[int, int]:
        """Return line and column, from 1, of the key that names a value, or those of `position` if there is none."""
        return self._keys.get(place) or self.position(place)

    def located(self, fault: Fault) -> str:
        """Return the message of a fault after its place: file:line:column, or the keys that lead to it."""
        if not fault.line:
            return fault.message
        if self.of_file:
            return f"{self.name}:{fault.line}:{fault.column}: {fault.message}"
        places = {position: place for place, position in (*self._values.items(), *self._keys.items())}
        keys = dotted(places.get((fault.line, fault.column), ()))
        return f"{self.name}: {fault.message if fault.message.startswith(keys) else f'{keys}: {fault.message}'}"


def read(path: Path, name: str | None = None) -> Document:
    """Parse a file; one that cannot be read raises SuiteError."""
    name = name or str(path)
    try:
        with open_file(path, DATA) as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise SuiteError(f"{name}: a directory; name a YAML file in it") from error
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a YAML file that can") from error
    return load(content, name)


def document_of(value: Mapping[str, Any], name: str) -> Document:
    """Return a mapping as a document: under the same rules, as the text that it is in YAML."""
    try:
        text = _YAML_NUMBER.sub(
            lambda part: _NOT_FINITE.get(part[0], part[0]), json.dumps(value, ensure_ascii=False, default=_plain)
        )
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give mappings, lists, texts, numbers, booleans and None"
        raise SuiteError(f"{name}: not a suite ({error}); {hint}") from error
    text = CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text)  # YAML takes some of them for line ends
    document = load(text, name)
    document.of_file = False
    return document


def _plain(value: Any) -> Any:
    """Return a mapping as a dict, and a path as text, for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a value in it is a {type(value).__name__}")


def load(content: bytes | str, name: str) -> Document:
    """Parse one YAML document.

    Faults of single entries are collected in the result; text of which no structure can be read raises a
    SuiteError with its place. An empty document has the value None.
    """
    document = Document(name)
    text = content if isinstance(content, str) else _decode(content, name)
    if len(text) > MAX_BYTES:
        raise SuiteError(
            f"{name}: larger than {MAX_BYTES:,} bytes, the limit of a suite; name a suite file, or split it"
        )
    try:
        node = StrictLoader(text).get_single_node()
        if node is not None:
            document.value = _Walk(document).value(node, ())
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text[: error.position])
        message = f"the character {chr(error.character)!r} is not allowed in YAML text"
        raise SuiteError(f"{name}:{line}:{column}: {message}; is this a suite file?") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        what = ", ".join(part for part in (error.context, error.problem) if part)
        what = what if isinstance(error, _TooMany) else f"not valid YAML: {_short(what, 300)}"
        raise SuiteError(f"{name}:{place}: {what}") from error
    except RecursionError as error:
        raise SuiteError(f"{name}:1:1: nested too deeply; a suite has a handful of levels") from error
    return document


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(content[: error.start].decode("utf-8", "replace"))
        what = f"byte 0x{content[error.start]:02x} is not UTF-8 text; is this a suite file?"
        raise SuiteError(f"{name}:{line}:{column}: {what}") from error


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Walk:
    """One walk over the composed nodes, which builds the value and notes positions and faults."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes = 0
        self.open: list[yaml.Node] = []

    def fault(self, node: yaml.Node, message: str) -> None:
        self.document.faults.append(Fault(*_start(node), message))

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            line, column = _start(node)
            what = f"aliases expand to more than {MAX_NODES:,} values; write out what is meant"
            raise SuiteError(f"{self.document.name}:{line}:{column}: {what}")
        value: Any = {}
        if any(node is parent for parent in self.open):
            self.fault(node, "an alias inside its own anchor: the value would contain itself")
        elif isinstance(node, yaml.ScalarNode):
            value = self.scalar(node)
        else:
            self.open.append(node)
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                value = self.mapping(node, place)
            elif isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                value = [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
            else:
                self.unknown_tag(node)
            self.open.pop()
        self.document._values[place] = _start(node)  # last, over that of a mapping merged into this one
        return value

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        """Return own keys over those merged by `<<`; of several mappings behind `<<`, an earlier one has precedence."""
        merges = [item for key, item in node.value if key.tag == _TAG + "merge"]
        sources = [part for item in merges for part in (item.value if item.id == "sequence" else [item])]
        result: dict[str, Any] = {}
        for source in reversed(sources):
            part = self.value(source, place)
            if isinstance(part, dict):
                result |= part
            else:
                self.fault(source, "the merge key << takes a mapping or a list of mappings")
        lines: dict[str, int] = {}
        for key_node, item in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            if not (isinstance(key_node, yaml.ScalarNode) and key_node.tag == _TAG + "str"):
                self.fault(key_node, f"the key {_shown(key_node)} is not a string; put it in quotes if it is a name")
            elif (key := self.text(key_node)) in lines:
                self.fault(key_node, f"the key {key!r} stands twice, first in line {lines[key]}; keep one")
            elif key is not None:
                lines[key] = _start(key_node)[0]
                self.document._keys[*place, key] = _start(key_node)
                result[key] = self.value(item, (*place, key))
        return result

    def scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind in ("str", "merge"):
            return self.text(node)
        if kind not in _SCALARS:
            self.unknown_tag(node)
        elif not _SCALARS[kind].match(text):
            self.fault(node, f"{_shown(node)!r} cannot be read as {kind}")
        elif kind == "bool":
            return text.lower() == "true"
        elif kind != "null":
            return self.number(node, kind, text)
        return None

    def text(self, node: yaml.ScalarNode) -> str | None:
        text = str(node.value)
        if len(text) > MAX_TEXT:
            self.fault(node, f"{_shown(node)} has {len(text):,} characters; shorten it to {MAX_TEXT:,}")
        elif fault := control_fault(text):
            self.fault(node, fault)
        else:
            return text
        return None

    def number(self, node: yaml.ScalarNode, kind: str, text: str) -> int | float | None:
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
        self.fault(node, f"{_shown(node)} is not a finite number that a setting could have; {rule}")
        return None

    def unknown_tag(self, node: yaml.Node) -> None:
        tag = _short(node.tag.replace(_TAG, "!!"))
        self.fault(node, f"the tag {tag} is not allowed: a suite holds plain values; remove the tag")


def _start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _shown(node: yaml.Node) -> str:
    return _short(str(node.value)) if isinstance(node, yaml.ScalarNode) else "(a list or mapping)"


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
