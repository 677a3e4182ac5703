"""Script that ends the process groups that a killed process leaves behind; that process holds its standard input.

Lines "+PID" and "-PID" list the groups that run. The input ends when the process that holds it ends, for whatever
reason; the script then ends every group that still runs. A child cannot do this alone, because one that hangs inside
a library may never check.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read standard input until its end, then end the groups that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
