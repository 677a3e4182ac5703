"""The command line: find the commands, run one, and return its exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from harness.cli.shared import streams
from harness.core.errors import UserError, guess, nearest
from harness.core.provenance.environment import package_version
from harness.core.run_options import shown_bytes
from harness.core.texts import LONGEST, visible

COMMANDS = (
    "init",
    "run",
    "plan",
    "validate",
    "cancel",
    "status",
    "report",
    "export",
    "gallery",
    "compare",
    "replicate",
    "list",
    "check-layer",
    "card",
)
"""The commands in the order of the help. Each is a module here that defines `HELP`, `EXAMPLES` (command lines without
the program), `add_options(parser)` and `execute(args)`, which returns the exit code. Bodies import torch, pandas and
matplotlib where they need them."""

PROGRAM = "python -m harness"

WITHOUT_TORCH = ("cancel", "list", "status")
ADDRESS_SPACE = 4 << 30  # bytes, of which importing torch with its CUDA libraries takes most
INTERRUPTED = 130
BROKEN_PIPE = 141  # exit code that a shell reports for a program ended by SIGPIPE

EPILOG = """exit codes: 0: all trials are ok, or the layer is; 1: a trial is not ok, or the layer has a fault;
2: the command or the suite is wrong; 3: data are missing or damaged; 4: undecided, as time ran out; 130: interrupted"""


class Parser(argparse.ArgumentParser):
    """A parser that raises a `UserError` for a wrong command, below the usage on standard error."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        self.print_usage(sys.stderr)
        raise UserError(f"{self.prog}: error: {message}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """See `argparse.ArgumentParser.parse_known_args`; the parser of a command refuses what it does not know."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            hints = {option: guess(option, self._option_string_actions) for option in options}
            guesses = "".join(f"; {option}: {hint}" for option, hint in hints.items() if hint)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{guesses}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """See `argparse.ArgumentParser._check_value`; also suggest the nearest choice."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {nearest(str(value), [*action.choices])}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of `argv` (by default, of the process), and return its exit code.

    An error that the user can correct is one message on standard error, under `--json` also a document on standard
    output; any other exception is a fault of this program and propagates.
    """
    streams.prepare()
    try:
        code = _execute(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more when it ends, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if fault := streams.fault():
        print(f"standard output cannot be written ({fault}), and is incomplete", file=sys.stderr)
        return code or UserError.exit_code
    return code


def _execute(argv: Sequence[str] | None) -> int:
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    args = argparse.Namespace(command=None)
    try:
        args = make_parser().parse_args(argv)
        if args.command not in WITHOUT_TORCH:
            _check_address_space()
        code: int = args.execute(args)
    except SystemExit as end:  # argparse has printed its help
        return end.code if isinstance(end.code, int) else 2
    except UserError as error:
        print("\n".join(map(_shown, str(error).split("\n"))), file=sys.stderr)
        if as_json:
            _print_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        if as_json:
            _print_error("interrupted")
        resumes = args.command in ("run", "replicate")
        rest = "; finished trials keep their records, and the same command resumes" * resumes
        print(f"interrupted{rest}", file=sys.stderr)
        return INTERRUPTED
    return code


def _check_address_space() -> None:
    """Raise a UserError if torch could not be loaded, which then fails anywhere, or ends the process."""
    limit = -1
    with contextlib.suppress(ImportError):  # as on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < ADDRESS_SPACE:
        raise UserError(
            f"ulimit -v: the address space is limited to {shown_bytes(limit)}, and torch with its libraries needs "
            f"{shown_bytes(ADDRESS_SPACE)}, most of which is no memory; raise it. `run --memory` limits memory"
        )


def _print_error(message: str) -> None:
    print(json.dumps({"verdict": None, "error": message}, indent=1), flush=True)


def _shown(line: str) -> str:
    """Return a line of a message with control characters as escapes, and without the middle if a long name is in it."""
    return visible(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]}…{line[-LONGEST // 2 :]}")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Train, time and count invertible linear layers in one shared backbone.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    version = f"invertbench {package_version('invertbench') or '(not installed: run from a checkout)'}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"harness.cli.{name.replace('-', '_')}")
        text = f"{module.HELP[0].upper()}{module.HELP[1:]}."
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=text,
            epilog="\n".join(["examples:", *(f"  {PROGRAM} {line}" for line in module.EXAMPLES)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_options(command)
        command.set_defaults(execute=module.execute)
    return parser
