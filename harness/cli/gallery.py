"""`gallery DIR`: write a page that links the reports in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "write index.html in a folder of reports, with the question and the answer of each"
EXAMPLES = ("gallery reports",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the reports, OUT")


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.reporting.page.gallery import write_gallery

    print(write_gallery(args.folder))
    return 0
