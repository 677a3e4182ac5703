"""Entry point of `python -m harness`; imports little, because every process of a trial imports it again."""

from __future__ import annotations

import gc


def main() -> int:
    """Run the command line and return its exit code."""
    # Most objects of a command live until its end: to look for garbage takes a tenth of its time. `run` turns it on.
    gc.disable()
    from harness.cli.parser import main as command_line

    return command_line()


if __name__ == "__main__":
    raise SystemExit(main())
