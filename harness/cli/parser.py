"""The command line: its commands, their options, and its exit codes."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from harness.core.errors import UserError
from harness.core.run_options import (
    CHECK_SECONDS,
    CHECKPOINT_SECONDS,
    Stale,
    parse_bytes,
    parse_seconds,
    parse_timeout,
    shown_seconds,
)
from harness.planning.suite_model import ProfileName

INTERRUPTED = 130
BROKEN_PIPE = 141  # exit code that a shell reports for a program ended by SIGPIPE

EPILOG = """exit codes: 0 all trials ok; 1 some trial is not; 2 the command or the suite is wrong;
3 data is missing; 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None takes them from the process.

    Returns:
        The exit code. An error that the user can correct is one message on standard error; any other exception is a
            fault of this program and propagates.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # so that an arrow in a table does not end a run on an ASCII terminal
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed its message or its help
        return end.code if isinstance(end.code, int) else 2
    try:
        from harness.cli.commands import COMMANDS

        code = COMMANDS[args.command](args)
        sys.stdout.flush()
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        rest = "; finished trials keep their records, and the same command resumes" if args.command == "run" else ""
        print(f"interrupted{rest}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output once more when it ends, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m harness",
        description="Train, time and count invertible linear layers in one shared backbone.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = _command(commands, "run", "run the remaining trials of a suite, then write its report")
    _add_suite(run)
    _add_plan_options(run)
    run.add_argument("--offline", action="store_true", help="download nothing; use the data that are present")
    run.add_argument(
        "--timeout", type=_quantity(parse_timeout), metavar="TIME", help="end a trial after 90, 30min, 2h (seconds)"
    )
    run.add_argument(
        "--memory", type=_quantity(parse_bytes), metavar="SIZE", help="end a trial that holds more, such as 4GiB"
    )
    run.add_argument(
        "--checkpoint",
        type=_quantity(parse_seconds),
        default=CHECKPOINT_SECONDS,
        metavar="TIME",
        help="interval between checkpoints of training (default: 60 s)",
    )
    run.add_argument("--fail-fast", action="store_true", help="stop the run at the first trial that fails")
    run.add_argument("--unchecked", action="store_true", help="run third-party layers without check-layer")
    run.add_argument("--host", action="store_true", help="name this machine in records")

    plan = _command(commands, "plan", "print the trials of a suite and their states")
    _add_suite(plan)
    _add_plan_options(plan)

    validate = _command(commands, "validate", "check a suite in all its profiles; nothing runs")
    _add_suite(validate)
    _add_profile(validate, default=None, text="only this profile (default: all)")

    cancel = _command(commands, "cancel", "cancel the remaining cluster jobs of a run")
    cancel.add_argument("folder", type=Path, metavar="DIR", help="OUT/<suite>, or a folder of such folders")

    status = _command(commands, "status", "count the trials of a run by state")
    status.add_argument("folder", type=Path, metavar="DIR", help="OUT/<suite>, or a folder of such folders")

    report = _command(commands, "report", "write the report of a run again, or one report of several runs")
    report.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="OUT/<suite>, or a folder of such; several runs are merged",
    )
    report.add_argument(
        "--out",
        type=Path,
        default=Path("reports/merged"),
        metavar="DIR",
        help="folder of a merge (default: reports/merged)",
    )
    report.add_argument(
        "--at",
        action="append",
        default=[],
        choices=["steps", "seconds", "parameters", "width"],
        help="add a table of the likelihoods at equal values of this measure; repeatable",
    )
    report.add_argument(
        "--benchmark",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="add times from a JSON file of pytest-benchmark to the figures",
    )

    compare = _command(commands, "compare", "compare a run with an earlier one, trial by trial")
    compare.add_argument("first", type=Path, metavar="A", help="OUT/<suite> of the earlier run")
    compare.add_argument("second", type=Path, metavar="B", help="OUT/<suite> of the later run")
    compare.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="CHANGE",
        help="threshold, 0.02 for likelihoods, 10%% for times and parameters; repeatable (default: 0.01, 5%%)",
    )
    compare.add_argument(
        "--other-code", action="store_true", help="also compare trials whose source differs, and report the differences"
    )
    compare.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")

    listing = _command(commands, "list", "list layers, flows, data sets or suites")
    listing.add_argument("what", choices=["layers", "flows", "datasets", "suites"])

    check = _command(commands, "check-layer", "check a layer by every rule of the interface")
    check.add_argument("layer", metavar="LAYER", help="NAME, FILE.py:CLASS or package.module:CLASS")
    check.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="settings", help="an option of the layer"
    )
    check.add_argument(
        "--timeout",
        type=_quantity(parse_timeout),
        default=CHECK_SECONDS,
        metavar="TIME",
        help=f"end the check after 90, 30min, 2h (seconds; default: {shown_seconds(CHECK_SECONDS)})",
    )
    check.add_argument("--json", action="store_true", help="print the report as one JSON document")
    return parser


def _command(commands: argparse._SubParsersAction, name: str, text: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)


def _add_suite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or the name of a packaged suite")


def _add_profile(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    parser.add_argument("--profile", choices=get_args(ProfileName), default=default, help=text)


def _add_plan_options(parser: argparse.ArgumentParser) -> None:
    _add_profile(parser, default="quick", text="size of the suite (default: quick)")
    parser.add_argument("--out", type=Path, default=Path("reports"), metavar="DIR", help="default: reports")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    parser.add_argument(
        "--data", type=Path, metavar="ROOT", help="folder of the data sets (default: $INVERTBENCH_DATA)"
    )
    parser.add_argument("--jobs", type=_positive, metavar="N", help="trials at once (default: as many as have room)")
    parser.add_argument("--executor", choices=["local", "slurm"], default="local", help="where trials run")
    parser.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the resources that jobs request from a cluster, such as partition=gpu or time=2h; repeatable",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="also run failed trials again (default: only interrupted ones)"
    )
    parser.add_argument(
        "--stale",
        choices=get_args(Stale),
        default="keep",
        help="treatment of records whose source has changed since (default: keep)",
    )
    parser.add_argument("--seeds", type=_positive, metavar="N", help="number of seeds (default: the profile's)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="run only trials with this layer, dataset or seed; repeatable",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        dest="settings",
        help="change a setting, such as training.steps=100 or layers.butterfly.options.levels=3; repeatable",
    )
    parser.add_argument(
        "--layer",
        action="append",
        default=[],
        metavar="FILE.py:CLASS",
        dest="layers",
        help="add a third-party layer as a row; repeatable",
    )


def _quantity(parse: Callable[[object], Any]) -> Callable[[str], Any]:
    """Return a parser of quantities whose ValueError becomes argparse's message."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return value
