"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from harness.core.run_options import Stale
from harness.execution.executor import executor_names
from harness.planning.suite_model import ProfileName


def keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command as the keyword arguments of its function in `harness`."""
    return {name: value for name, value in vars(args).items() if name not in ("command", "execute")}


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add the argument SUITE."""
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or the name of a packaged suite")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the argument DIR, for the run folders or archives that `harness.cli.shared.runs.run_folders` finds."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="OUT/<suite>, a folder of such folders, or an archive")


def add_profile(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    """Add the option `--profile`."""
    parser.add_argument("--profile", choices=get_args(ProfileName), default=default, help=text)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option `--data`."""
    text = "folder of the data sets (default: $INVERTBENCH_DATA)"
    parser.add_argument("--data", type=Path, metavar="ROOT", help=text)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options from which `harness.interface.request.make_request` makes a plan."""
    add_profile(parser, default="quick", text="size of the suite (default: quick)")
    parser.add_argument(
        "--out", type=Path, default=Path("reports"), metavar="DIR", help="folder of the reports (default: reports)"
    )
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="where trials compute (default: auto)"
    )
    add_data(parser)
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="trials at once (default: as many as there is room for)"
    )
    parser.add_argument(
        "--executor", choices=executor_names(), default="local", help="executor of the trials (default: local)"
    )
    add_repeatable(
        parser,
        "--cluster",
        "KEY=VALUE",
        "a setting of the executor slurm or dask, such as partition=gpu or address=tcp://HOST:PORT; repeatable",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="also run failed trials again (default: only interrupted ones)"
    )
    parser.add_argument(
        "--stale",
        choices=get_args(Stale),
        default="keep",
        help="use records of changed source code, or run their trials again (default: keep)",
    )
    parser.add_argument("--seeds", type=positive, metavar="N", help="number of seeds (default: the profile's)")
    add_repeatable(
        parser,
        "--only",
        "KEY=VALUE",
        "run and report only a layer, dataset, seed, repetition or claim, such as layer=butterfly; repeatable",
    )
    add_repeatable(
        parser,
        "--set",
        "PATH=VALUE",
        "change a setting, such as training.steps=100 or layers.butterfly.options.levels=3; repeatable",
        dest="settings",
    )
    add_repeatable(parser, "--layer", "FILE.py:CLASS", "add a third-party layer as a row; repeatable", dest="layers")


def add_repeatable(
    parser: argparse.ArgumentParser, name: str, metavar: str, text: str, dest: str | None = None
) -> None:
    """Add a repeatable option; its value is the list of texts."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=text, dest=dest)


def quantity(parse: Callable[[object], Any]) -> Callable[[str], Any]:
    """Return the argument type of a quantity: the ValueError of `parse` becomes argparse's message."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def positive(text: str) -> int:
    """Return a whole number of at least 1; raise ArgumentTypeError for any other text."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return value
