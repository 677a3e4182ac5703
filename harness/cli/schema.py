"""`schema`: print the JSON schema of suite files."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON schema of suite files, for editors"
EXAMPLES = ("schema",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add no option."""


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.execution.executor import section_model
    from harness.planning.schema import suite_schema

    print(json.dumps(suite_schema(section_model()), indent=1))
    return 0
