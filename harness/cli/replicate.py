"""`replicate SUITE`: run a suite under several draws of all that it draws, and count the verdicts that stay."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import run
from harness.cli.shared.options import positive
from harness.cli.shared.runs import silenced
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.planning.suite import read_suite
from harness.planning.suite_base import SuiteFile

HELP = "run a suite under other draws, and tell which verdicts stay"
EXAMPLES = (
    "replicate which_layer --draws 5",
    "replicate first/which_layer second/which_layer third/which_layer --out /tmp/compared",
)

STEM = "replication"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command: those of `run`, but for its argument."""
    parser.add_argument(
        "suite",
        nargs="+",
        metavar="SUITE|DIR",
        help="a suite, of which each draw is run in OUT/<suite>-draws; or two and more runs of one, or their archives",
    )
    parser.add_argument("--draws", type=positive, default=5, metavar="N", help="draws of the suite (default: 5)")
    run.add_run_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial of the draws counts as ok, else 1."""
    from harness.reporting.compare.replication import replication, replication_tables
    from harness.reporting.comparisons import comparisons
    from harness.reporting.frame import csv_bytes
    from harness.reporting.tables.rendering import latex_tables, markdown, plain

    folder, runs, code = args.out, {name: Path(name) for name in args.suite}, 0
    if len(runs) == 1:
        if args.draws < 2:
            raise UserError("--draws 1: verdicts are compared between draws, so there are two or more")
        suite = read_suite(args.suite[0])
        folder = args.out / f"{suite.suite}-draws"
        runs, code = _run_draws(suite, folder, args)
    result = replication({name: comparisons(run) for name, run in runs.items()})
    tables = replication_tables(result)
    content = {
        "md": "\n\n".join(map(markdown, tables)).encode() + b"\n",
        "tex": latex_tables(tables).encode() + b"\n",
        "csv": csv_bytes(result.frame.reset_index()),
    }
    for ending, data in content.items():
        write_atomically(folder / f"{STEM}.{ending}", data)
    print("\n\n".join(map(plain, tables)))
    print(f"\nin {folder}: {', '.join(f'{STEM}.{ending}' for ending in content)}")
    return code


def _run_draws(suite: SuiteFile, folder: Path, args: argparse.Namespace) -> tuple[dict[str, Path], int]:
    """Run each draw, and return its run by name, with the exit code of all."""
    profiles = [profile for part in suite.parts.values() for profile in part.profiles.values()]
    if suite.part_key is not None or not all("draw" in type(profile).model_fields for profile in profiles):
        raise UserError(f"{suite.suite}: a suite of kind {suite.kind} draws nothing; replicate one of kind density")
    if any(text.replace(" ", "").startswith("draw=") for text in args.settings):
        raise UserError("--set draw: each draw of a replication has its own; leave it out")
    runs, code = dict[str, Path](), 0
    for number in range(args.draws):
        name = f"draw-{number}"
        print(f"{suite.suite}, {name}, in {folder / name / suite.suite}", flush=True)
        changes = {"suite": args.suite[0], "settings": [*args.settings, f"draw={number}"], "out": folder / name}
        with silenced():
            code = max(code, run.execute(argparse.Namespace(**vars(args) | changes)))
        runs[name] = folder / name / suite.suite
    return runs, code
