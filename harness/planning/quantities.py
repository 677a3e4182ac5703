"""Times and amounts of memory as a suite file writes them: "30 min", "4GiB", or a bare number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from harness.core.run_options import parse_bytes, parse_timeout


def said(parse: Callable[[object], Any]) -> Callable[[Any], Any]:
    """A parser whose ValueError is the message of a fault; None stays None."""

    def parsed(value: Any) -> Any:
        try:
            return value if value is None else parse(value)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{rule}", {"rule": str(error)}) from error

    return parsed


Duration = Annotated[float | None, BeforeValidator(said(parse_timeout))]  # "30 min", or a number of seconds
Memory = Annotated[int | None, BeforeValidator(said(parse_bytes))]  # "4GiB", or a number of bytes
