"""`compare A B`: compare a run with an earlier one, trial by trial."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.planning.plan import Plan, stray_records

HELP = "compare a run with an earlier one, trial by trial"
EXAMPLES = (
    "compare reports/quickstart later/quickstart",
    "compare reports/quickstart later/quickstart --threshold 0.02 --markdown changes.md",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("first", type=Path, metavar="A", help="OUT/<suite> of the earlier run, or an archive")
    parser.add_argument("second", type=Path, metavar="B", help="OUT/<suite> of the later run, or an archive")
    text = "ignore smaller changes: 0.02 for likelihoods, 10%% for times and counts; repeatable (default: 0.01, 5%%)"
    parser.add_argument("--threshold", action="append", default=[], metavar="CHANGE", help=text)
    text = "also compare trials whose source differs, and report the differences"
    parser.add_argument("--other-code", action="store_true", help=text)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to this file")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if nothing became worse, 1 if something did or a record is damaged; 2 if nothing could be compared."""
    from harness.reporting.compare.comparison import compare, comparison_table
    from harness.reporting.tables.rendering import markdown, plain

    comparison = compare(args.first, args.second, threshold=args.threshold, other_code=args.other_code)
    table = comparison_table(comparison)
    if args.markdown is not None:
        try:
            write_atomically(args.markdown, f"{markdown(table)}\n".encode())
        except OSError as error:
            raise UserError(f"--markdown {args.markdown}: cannot be written ({error.strerror})") from error
    print(plain(table))
    for folder in (args.first, args.second):
        for line in stray_records(Plan.load(folder), folder):
            print(line)
    if comparison.empty:
        print("\nnothing could be compared; the remarks say why")
        return 2
    return 1 if comparison.worse else 0
