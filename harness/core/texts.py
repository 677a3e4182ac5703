"""One rule for texts: a suite has none with control characters, and those of third-party code are bounded and escaped.

The characters are listed here rather than asked of `str.isprintable`, which refuses spaces and joined letters of most
languages, and depends on the version of Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""A character that no text may have: C0 and C1 controls but tabs and line ends, line and paragraph separators, those
that turn the order of the letters around them, lone surrogates, and two that no XML may have."""

LONGEST = 2000  # characters of the text of an exception in a record; the log of its trial has more
LONGEST_NOTE = 32_000  # characters of any text in a record, such as a traceback
LONGEST_LOGGED = 1 << 20  # characters of a traceback in the log of a trial


def visible(text: str) -> str:
    """Return the text with its control characters written as escapes."""
    return CONTROL.sub(lambda control: control[0].encode("unicode_escape").decode("ascii"), text)


def control_fault(text: str) -> str | None:
    """Return the fault of a text with a control character; None without any."""
    control = CONTROL.search(text)
    return control and f"{shortened(text, 80)!r} has the control character {control[0]!a}; write text without it"


def formless(mark: str) -> bool:
    """Return whether a character only changes those beside it: joints, variants, marks of direction, soft hyphens."""
    return unicodedata.category(mark) == "Cf" or "\ufe00" <= mark <= "\ufe0f"


def one_line(text: str) -> str:
    """Return the text with single spaces for line ends and repeated ASCII spaces, and without control characters."""
    return re.sub(r"\s+", " ", CONTROL.sub(" ", text), flags=re.ASCII).strip(" ")


def shortened(text: str, most: int) -> str:
    """Return the text, or its first `most` characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


def first_few(texts: Sequence[str], most: int = 8) -> str:
    """Return "a, b and 3 more": the first texts, and the number of the others."""
    return ", ".join(texts[:most]) + f" and {len(texts) - most:,} more" * (len(texts) > most)


def bounded(text: str, most: int = LONGEST) -> str:
    """Return the text with control characters as escapes, cut after about `most` characters."""
    if len(text) > most:
        text = f"{text[:most]}… ({len(text):,} characters in all)"
    return visible(text)


def error_text(error: BaseException, most: int = LONGEST) -> str:
    """Return the type of an exception and its message, bounded; the message may be anything, or raise itself."""
    message = message_of(error, most)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def message_of(error: BaseException, most: int = LONGEST) -> str:
    """Return the message of an exception, bounded."""
    try:
        return bounded(str(error), most)
    except BaseException as fault:  # third-party code
        return f"a message that raises {type(fault).__name__}"


def printable(value: Any, most: int = LONGEST_NOTE) -> Any:
    """Return a value of JSON with each of its texts, names included, bounded to `most` characters."""
    match value:
        case str():
            return bounded(value, most)
        case dict():
            return {printable(name, most): printable(inner, most) for name, inner in value.items()}
        case list() | tuple():
            return [printable(inner, most) for inner in value]
    return value
