"""`schema`: print the JSON schema of suite files."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON schema of suite files, for editors"
EXAMPLES = ("schema", "schema --kind runtime")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--kind", metavar="KIND", help="print the schema of one kind of suite (default: of all kinds)")


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.execution.executor import section_model
    from harness.planning.schema import suite_schema

    print(json.dumps(suite_schema(args.kind, section_model()), indent=1))
    return 0
