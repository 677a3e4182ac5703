"""Try the imports of third-party layers in another process, before a plan imports them in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from harness.checking.isolated import check_in_process
from harness.core.errors import UserError
from harness.planning.suite import read_suite


def try_imports(source: str, added: Sequence[str] = ()) -> None:
    """Make sure that importing the layers of a suite does not end the process.

    Any other fault is no matter here: the plan reports it, with its place in the file.

    Args:
        source: a suite.
        added: layers that the command line adds to it.

    Raises:
        UserError: the import of a layer ended its process, or did not end in time.
    """
    specs, folder = list(added), None
    with contextlib.suppress(UserError):
        suite = read_suite(source)
        specs += [row.layer for row in suite.layers.values() if row.layer is not None]
        folder = suite.folder
    for spec in dict.fromkeys(spec for spec in specs if ":" in spec):
        ended = ""
        with contextlib.suppress(UserError):
            ended = check_in_process(spec, {}, folder, shapes=()).ended
        if ended:
            raise UserError(ended)
