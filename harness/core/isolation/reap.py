"""Ends the process groups that a killed process leaves behind: run as a script, whose standard input that process
holds.

Lines "+PID" and "-PID" say which groups run. The end of the input is the end of the process that holds it, however it
came about, and every group that still runs is ended with it. A child cannot see to that alone: one that hangs inside
a library may never get to look.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Follow the process that holds the input to its end."""
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
