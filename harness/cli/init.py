"""`init FILE`: write a suite for a file or folder of data."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.shared.runs import keywords

HELP = "write a suite that compares layers on your file or folder of data"
EXAMPLES = ("init mine.csv", "init pictures/ --out pictures.yaml")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    text = "a table (.csv, .tsv, .txt, .data, .dat), arrays (.npz, .npy), a folder of images or of WFDB records"
    parser.add_argument("source", type=Path, metavar="FILE", help=text)
    parser.add_argument("--out", type=Path, metavar="SUITE", help="the suite file (default: <name>.yaml here)")


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.interface.init import init

    init(**keywords(args))
    return 0
