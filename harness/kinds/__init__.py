"""Kinds of trials, one folder each: how a trial runs, its columns, its suites, its tables and figures.

Importing this package registers the trials and the suites of every folder in it (see `harness.core.trial` and
`harness.planning.suite`); its reports are imported when one is written (`harness.reporting.report`).
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

for _folder in iter_modules(__path__):
    for _part in ("trial", "suite"):
        if find_spec(f"{__name__}.{_folder.name}.{_part}"):
            import_module(f"{__name__}.{_folder.name}.{_part}")
