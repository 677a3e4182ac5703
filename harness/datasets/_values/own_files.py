"""Read a user's own file of numbers: the lattice step that options state, and the splits of the prepared arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets._values.encoding import Kind, lattice_facts
from harness.datasets.base import Splits

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
VERSION = 3  # of the prepared arrays


def _step(value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but the three forms."""
    if value is None or value == "detect":
        return value
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not numbers or any(type(number) not in (int, float) or not 0 < number < np.inf for number in numbers):
        raise PydanticCustomError("step", f"should be {STEP}")
    return tuple(map(float, numbers))


Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(_step)]


class FileOptions(Protocol):
    """Options of a data set that is one file."""

    @property
    def file(self) -> str:
        """The path of the file."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the options as JSON values."""


def file_splits(
    store: Store, name: str, chosen: FileOptions, kind: Kind, build: Callable[[Path, Writer], None]
) -> Splits:
    """Return the splits of a file, prepared by `build(path, writer)` on the first call.

    `build` notes "levels", "lattices" (of `Encoding.noted`), "description" and "left_out".
    """
    path = store.find(name, chosen.file, "it is the option `file`: beside the suite, below the data root or absolute")
    key = {"version": VERSION, **chosen.model_dump(mode="json")}
    prepared = prepare(store, name, key, [path], lambda writer: build(path, writer))
    notes = prepared.notes
    facts = lattice_facts(notes["lattices"], kind)
    return Splits.of(prepared, notes["levels"], notes["description"], left_out=tuple(notes["left_out"]), **facts)
