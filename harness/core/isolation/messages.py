"""Messages from a process that runs third-party code: JSON objects, one a line, read from a pipe without waiting.

Such code may write to the pipe itself. Its bytes are never unpickled, are bounded before they are parsed, and raise
`BadMessage` in the reading process if they are not a message; reading never waits for the rest of a message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from harness.core.texts import visible

LONGEST = 32 << 10  # bytes of a message
READ = 64 << 10  # bytes per read, so that a process that floods its pipe delays the others little


class BadMessage(Exception):
    """The bytes in the pipe are not a message; the text completes "it wrote ... to the pipe of its messages"."""


def send(connection: Connection, message: Mapping[str, Any]) -> None:
    """Write one message of at most `LONGEST` bytes; raise OSError if the reading end is closed."""
    line = json.dumps(message).encode("ascii") + b"\n"
    if len(line) > LONGEST:
        raise ValueError(f"a message of {len(line)} bytes; at most {LONGEST} are allowed: shorten its text")
    while line:
        line = line[os.write(connection.fileno(), line) :]


class Receiver:
    """The reading end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        os.set_blocking(connection.fileno(), False)
        self.connection = connection  # closed once no further message can arrive; a caller can wait for it
        self.partial = b""  # the beginning of an incomplete message

    def receive(self) -> list[dict[str, Any]]:
        """Return the complete messages among the next `READ` bytes, without waiting; close at the end of the pipe.

        Raises:
            BadMessage: the bytes are not a message; no further call makes sense.
        """
        if self.connection.closed:
            return []
        try:
            new = os.read(self.connection.fileno(), READ)
        except BlockingIOError:
            return []
        if not new:
            self.connection.close()
        *lines, self.partial = (self.partial + new).split(b"\n")
        if len(self.partial) > LONGEST:
            raise BadMessage(f"more than {LONGEST} bytes without the end of a message")
        return [_parsed(line) for line in lines]


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise BadMessage(f"{visible(repr(line[:40]))}, which is not a message")
    return message
