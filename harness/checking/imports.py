"""Try the imports of third-party layers and data sets in another process, before a plan imports them in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from harness.checking.isolated import check_in_process
from harness.core.errors import UserError
from harness.planning.suite import read_suite


def try_imports(source: str, added: Sequence[str] = ()) -> None:
    """Ensure that importing the layers and data sets of a suite does not end the process.

    Other faults are ignored here: the plan reports them, with their place in the file.

    Args:
        source: a suite.
        added: layers added on the command line.

    Raises:
        UserError: the import of one ended its process, or did not end in time.
    """
    specs, folder = list(added), None
    with contextlib.suppress(UserError):
        suite = read_suite(source)
        specs += [row.layer for row in suite.layers.values() if row.layer is not None]
        entries = (entry for profile in suite.profiles.values() for entry in profile.datasets.items())
        specs += [entry.data or label for label, entry in entries]
        folder = suite.folder
    for spec in dict.fromkeys(spec for spec in specs if ":" in spec):
        ended = ""
        with contextlib.suppress(UserError):
            ended = check_in_process(spec, {}, folder, shapes=()).ended
        if ended:
            raise UserError(ended)
