"""Start and end a process that runs third-party code.

A process is forked from a clean server that has done the imports and computed nothing ("forkserver"), so that it
starts within milliseconds and no state passes from one process to the next.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext as Context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.core.files import DATA, open_file
from harness.core.isolation.descendants import (
    CLIENT_VARIABLE,
    adopt_orphans,
    continue_server,
    end_orphans,
    end_with_parent,
)
from harness.core.isolation.messages import Receiver

FIRST_IMPORT = "harness.core.isolation.importing"
OOM_SCORE = "500"  # of 1000; out of memory, the kernel ends this process rather than its parent
SERVER_GONE = 255  # exit code of a process whose fork server ended before it
# The address of a socket has at most 107 bytes, of which multiprocessing takes "/pymp-12345678/listener-12345678".
LONGEST_FOLDER = 107 - 32
LONGEST_LOG, LONGEST_RUNNING_LOG = 1 << 22, 1 << 26  # bytes of its end, and of all of it while the process runs
LOG_TAIL = 60  # lines; the stack of a crash in a model is long, and begins with its cause
LOG_TAIL_BYTES = 31_000  # what fits into a note of a record, of which the end would be cut off


def start_server(preload: Iterable[str]) -> Context:
    """Start the fork server, if it does not run yet, and return before its imports are done.

    Only the modules of the first call are preloaded. A caller with seconds of other work to do can start it early.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(dict.fromkeys([FIRST_IMPORT, *preload])))
    # Ctrl-C goes to every process of the terminal; a fork server that is still importing would end with a traceback.
    # It inherits this block, which each child lifts. Starting the tracker would lift the block: start it first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ[CLIENT_VARIABLE] = str(os.getpid())
    try:
        with _short_temporary_folder():
            forkserver.ensure_running()
    finally:
        os.environ.pop(CLIENT_VARIABLE, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextlib.contextmanager
def _short_temporary_folder() -> Iterator[None]:
    """Put the server's socket, and those of all processes below, into a folder of a short name if $TMPDIR is long."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER:
        places = (place for place in ("/tmp", "/var/tmp", "/dev/shm") if os.access(place, os.W_OK | os.X_OK))
        tempfile.tempdir = next(places, before)
    try:
        yield
    finally:
        tempfile.tempdir = before


@dataclass(frozen=True)
class Child:
    """Handle of a process that runs third-party code, in its parent."""

    process: BaseProcess  # leader of a new session and process group, once it runs
    messages: Receiver
    log: Path

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self.process.pid or 0

    def end(self) -> None:
        """End the process and its group; the group exists only once the process has created it."""
        self._end_group()
        self.process.kill()

    def clear(self) -> None:
        """Wait for the end of the process, end every process that it has left, and cut its log."""
        continue_server()
        self.process.join()
        self._end_group()
        end_orphans()
        self.limit_log(LONGEST_LOG)

    def limit_log(self, most: int = LONGEST_RUNNING_LOG) -> None:
        """Cut a log longer than `most`; call this twice a second. What a running process writes meanwhile is lost."""
        with contextlib.suppress(OSError), self.log.open("a+b") as file:
            if file.tell() > most:
                file.seek(-LONGEST_LOG, os.SEEK_END)
                end = file.read(LONGEST_LOG)
                file.truncate(0)
                file.write(end)

    def _end_group(self) -> None:
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


def start(context: Context, target: Callable[..., None], args: tuple[Any, ...], *, log: Path, name: str) -> Child:
    """Start a process that calls `target(*args, pipe)`, all picklable, and sends messages; its output goes to `log`."""
    receiver, sender = context.Pipe(duplex=False)
    log = log.absolute()
    process = context.Process(target=_main, args=(target, args, log, sender), name=name)
    continue_server()
    with _empty_main():
        process.start()
    sender.close()
    return Child(process, Receiver(receiver), log)


@contextlib.contextmanager
def _empty_main() -> Iterator[None]:
    """Hide the main module: Python would import it in the new process, where a script would start its run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _main(target: Callable[..., None], args: tuple[Any, ...], log: Path, messages: Connection) -> None:
    gc.freeze()  # what the server has imported: to visit it would copy the memory that is shared with the server
    gc.enable()
    os.setsid()  # this process leaves the terminal's group, and ends with its parent, however that ends
    adopt_orphans()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    end_with_parent(sys.modules[FIRST_IMPORT].SERVER)  # to the kernel, the parent is the fork server
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # The fork server runs until every copy of this end of a pipe is closed, and would end at a byte in it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    os.close(nowhere)
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    target(*args, messages)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def ending_text(exit_code: int | None) -> str:
    """Say how a process ended, such as "the process was ended by SIGSEGV (Segmentation fault)"."""
    if exit_code == SERVER_GONE:
        return "the process ended together with the server that started it"
    if exit_code is None or exit_code >= 0:
        return f"the process ended with exit code {exit_code}"
    return f"the process was ended by {signal_name(-exit_code)} ({signal.strsignal(-exit_code) or 'unknown'})"


def signal_name(number: int) -> str:
    """Return a signal's name, such as "SIGSEGV"; a number without a name is returned as text."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(path: Path, lines: int = LOG_TAIL) -> str | None:
    """Return the last lines of a log of any length; None without a log."""
    with contextlib.suppress(OSError), open_file(path, DATA) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LOG_TAIL_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    return None
