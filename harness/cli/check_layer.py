"""`check-layer LAYER`: check a layer by every rule of the interface."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from harness.core.arguments import Option, add_arguments, rule
from harness.core.errors import Undecided
from harness.core.run_options import CHECK_SECONDS, parse_timeout
from harness.core.settings import Flag, Settings

HELP = "check a layer by every rule of the interface"
EXAMPLES = ("check-layer butterfly --set levels=3 --shape 3,64,64", "check-layer examples/householder.py:Householder")


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if len(sizes) not in (2, 3) or not all(size.strip().isdecimal() and int(size) for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is no event shape; write C,L or C,H,W, such as 3,64,64")
    return tuple(map(int, sizes))


class CheckArguments(Settings):
    """The options of the command.

    Attributes:
        settings: set an option of the layer.
        shapes: check the layer on events C,L or C,H,W too, in place of the default large events.
        no_large: leave out the default events of more than 256 entries.
        timeout: end the check after this time, such as 90 (seconds) or 30min.
    """

    settings: Annotated[tuple[str, ...], Option("OPTION=VALUE", ("--set",))] = ()
    shapes: Annotated[tuple[tuple[int, ...], ...], Option("C,H,W", ("--shape",), read=_shape)] = ()
    no_large: Flag = False
    timeout: Annotated[float, rule(parse_timeout, float | str), Option("TIME")] = CHECK_SECONDS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("layer", metavar="LAYER", help="a name of `list layers`, FILE.py:CLASS or package.module:CLASS")
    add_arguments(parser, CheckArguments)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if the layer obeys every rule, 1 if it is refused, 4 if rules were not answered and none has failed."""
    from harness.checking.isolated import check_in_process, start_check_server
    from harness.planning.strict_yaml import parse_options

    start_check_server()
    stream = sys.stderr if args.json else sys.stdout

    def show(lines: Sequence[str]) -> None:
        print("\n".join(lines), file=stream, flush=True)

    shown = None if args.json and not (stream and stream.isatty()) else show
    extent = {"extra": args.shapes, "large": not (args.shapes or args.no_large)}
    report = check_in_process(args.layer, parse_options(args.settings), Path.cwd(), args.timeout, shown, **extent)
    if args.json:
        print(json.dumps(report.document(), indent=1))
    else:
        show(report.closing())
    return {"ok": 0, "refused": 1, "undecided": Undecided.exit_code}[report.outcome]
