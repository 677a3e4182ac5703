"""Try the imports of third-party layers in another process, before a plan imports them in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from harness.checking.isolated import check_in_process
from harness.core.errors import UserError


def try_imports(layers: Iterable[tuple[str, Path | None]]) -> None:
    """Ensure that importing third-party layers does not end the process.

    Other faults are ignored here: the plan reports them, with their place in the suite.

    Args:
        layers: each with the folder where its file is looked for first.

    Raises:
        UserError: the import of a layer ended its process, or did not end in time.
    """
    for spec, folder in dict.fromkeys(layers):
        ended = ""
        with contextlib.suppress(UserError):
            ended = check_in_process(spec, {}, folder, shapes=()).ended
        if ended:
            raise UserError(ended)
