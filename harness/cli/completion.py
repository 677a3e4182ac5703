"""`completion SHELL`: print a script by which a shell completes commands, options and their values."""

from __future__ import annotations

import argparse

from harness.core.errors import UserError

HELP = "print a script that completes commands, options and values in a shell"
EXAMPLES = ("completion bash", "completion zsh")

PROGRAM = "invertbench"  # a shell completes by the name of a program: not `python -m harness`

PATHS = ("DIR", "ROOT", "A", "B", "FILE")
"""Metavars of options and arguments whose values are paths; those of runs may be archives."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument of this command."""
    parser.add_argument("shell", choices=["bash", "zsh"], help="the shell that reads the script")


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    try:
        import shtab
    except ImportError as error:
        raise UserError(f"completion: {error}; install it: pip install shtab, or 'invertbench[completion]'") from error
    from harness.cli.list import layer_classes
    from harness.cli.parser import make_parser
    from harness.planning.suite import packaged_suites

    parser = make_parser()
    parser.prog = PROGRAM
    named = {"SUITE": packaged_suites(), "LAYER": sorted(layer_classes()[0])}
    [commands] = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for action in (action for command in commands.values() for action in command._actions):
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar in named:
            files = [shtab.Choice("file")] if args.shell == "bash" else []  # zsh offers the names alone
            action.choices = [*named[metavar], *files]
        elif metavar in PATHS:
            action.complete = shtab.FILE
    print(shtab.complete(parser, args.shell))
    return 0
