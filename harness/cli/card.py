"""`card LAYER DIR`: print a page about a layer: what it is, its check, and its rows in the tables of reports."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

from harness.cli.list import layer_pages
from harness.cli.shared.runs import add_folder, run_folders
from harness.core.errors import UserError

HELP = "print a page about a layer: its check, and its rows in the tables of reports"
EXAMPLES = ("card butterfly reports/quickstart", "card butterfly reports --over conv1x1-twice")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("layer", metavar="LAYER", help="a name of `list layers`, FILE.py:CLASS or package.module:CLASS")
    add_folder(parser)
    text = "the row to show beside the layer's (default: %(default)s)"
    parser.add_argument("--over", metavar="ROW", default="conv1x1", help=text)
    text = "an option of the layer for its check"
    parser.add_argument("--set", metavar="OPTION=VALUE", dest="settings", action="append", default=[], help=text)


def execute(args: argparse.Namespace) -> int:
    """Return 0 if the layer obeys every rule of check-layer, 1 if not."""
    from harness.checking.isolated import check_in_process, start_check_server
    from harness.planning.strict_yaml import parse_options

    row = args.layer.rpartition(":")[2]
    shown = list(_rows(row, args.over, args.folder))
    if not shown:
        raise UserError(
            f"{args.folder}: no table has the row {row}; give the folder of a run with --layer {args.layer}"
        )
    start_check_server()
    checked: list[str] = []
    report = check_in_process(args.layer, parse_options(args.settings), Path.cwd(), show=checked.extend)
    check = "\n".join(["```", *checked, *report.closing(), "```"])
    about = [f"```\n{layer_pages()[row]}\n```"] if row in layer_pages() else []
    words = [args.layer, str(args.folder), "--over", args.over, *(f"--set={setting}" for setting in args.settings)]
    command = shlex.join(["python", "-m", "harness", "card", *words])
    print("\n\n".join([f"# {row}", *about, "## Check", check, *shown, f"`{command}` makes this page again."]))
    return 0 if report.ok else 1


def _rows(row: str, over: str, folder: Path) -> Iterator[str]:
    """Yield Markdown paragraphs: tables of each run that have the row, with it and the other row alone."""
    from harness.reporting.report import ReportedResults
    from harness.reporting.tables.rendering import escape_markdown, markdown
    from harness.reporting.tables.selection import Selection

    for run in run_folders(folder):
        results = ReportedResults.read(run)
        tables = [table for table in results.report.tables if table.on_card or not table.detail]
        tables = [table for table in tables if row in (line[0] for line in table.rows)]
        if tables:
            chosen = Selection(rows=[row, over] if over in results.plan.rows else [row]).of(tables)
            yield from (f"## {escape_markdown(results.plan.titled[0])}", *map(markdown, chosen), results.suite_line)
