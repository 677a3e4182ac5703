"""Arguments that several commands share, beside those of `harness.interface.options`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command as the keyword arguments of its function in `harness`."""
    return {name: value for name, value in vars(args).items() if name not in ("command", "execute")}


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add the argument SUITE."""
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or the name of a packaged suite")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the argument DIR, for the run folders or archives that `harness.cli.shared.runs.run_folders` finds."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="OUT/<suite>, a folder of such folders, or an archive")
