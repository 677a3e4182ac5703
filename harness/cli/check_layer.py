"""`check-layer LAYER`: check a layer by every rule of the interface."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.cli.shared.options import add_repeatable, quantity
from harness.core.run_options import CHECK_SECONDS, parse_timeout, shown_seconds

HELP = "check a layer by every rule of the interface"
EXAMPLES = ("check-layer butterfly --set levels=3", "check-layer examples/householder.py:Householder")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("layer", metavar="LAYER", help="NAME, FILE.py:CLASS or package.module:CLASS")
    add_repeatable(parser, "--set", "OPTION=VALUE", "an option of the layer", dest="settings")
    parser.add_argument(
        "--timeout",
        type=quantity(parse_timeout),
        default=CHECK_SECONDS,
        metavar="TIME",
        help=f"end the check after 90, 30min, 2h (seconds; default: {shown_seconds(CHECK_SECONDS)})",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if the layer obeys every rule, else 1."""
    from harness.checking.isolated import check_in_process, start_check_server
    from harness.planning.overrides import parse_options

    start_check_server()
    report = check_in_process(args.layer, parse_options(args.settings), Path.cwd(), args.timeout)
    print(json.dumps(report.document(), indent=1) if args.json else "\n".join(report.lines()))
    return 0 if report.ok else 1
