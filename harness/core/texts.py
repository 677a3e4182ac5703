"""Texts of third-party code, such as messages of exceptions: bounded and printable before anything shows them."""

from __future__ import annotations

from typing import Any

LONGEST = 2000
"""Characters of the text of an exception in a record; the log of its trial has more."""

LONGEST_NOTE = 32_000
"""Characters of any text in a record, such as a traceback."""

LONGEST_LOGGED = 1 << 20
"""Characters of a traceback in the log of a trial."""


def visible(text: str) -> str:
    """Return the text with its control characters, except tabs and line ends, written as escapes."""
    if text.isprintable():  # as almost every text is
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shortened(text: str, most: int) -> str:
    """Return the text, or its first `most` characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


def bounded(text: str, most: int = LONGEST) -> str:
    """Return the text with control characters and lone surrogates as escapes, cut after about `most` characters."""
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


def printable(value: Any) -> Any:
    """Return a value of JSON with each of its texts, names included, bounded to `LONGEST_NOTE`."""
    match value:
        case str():
            return bounded(value, LONGEST_NOTE)
        case dict():
            return {printable(name): printable(inner) for name, inner in value.items()}
        case list() | tuple():
            return [printable(inner) for inner in value]
    return value
