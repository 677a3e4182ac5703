"""Connect to a Dask scheduler without running code of it or of its workers.

distributed unpickles the results, types, exceptions and warnings that it receives, and unpickling runs code. A command
needs bytes and the texts of common exceptions alone: while it is connected, everything else becomes a `Foreign`.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import io
import logging
import pickle
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar

import distributed
import distributed.protocol.pickle
from distributed.security import Security

from harness.core.errors import UserError
from harness.core.texts import error_text

CONNECT_SECONDS = 15.0
LONGEST_REASON = 300  # characters


class Foreign(Exception):
    """Stands for an object of another process, which is not made here."""

    def __setstate__(self, state: object) -> None:
        """Ignore the state of the object."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return bytes or a builtin exception; a `Foreign` in place of any other class or function."""
        named = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(named, type) and (named is bytes or issubclass(named, Exception)):
            return named
        return _exception if name.startswith("unpickle_exception") else type(name, (Foreign,), {})


def _exception(cls: Any, values: Any, *_: object) -> Any:
    """Return an exception without its cause and traceback, in place of functions of tblib."""
    made = cls if isinstance(cls, type) else Foreign  # a class that was sent as code is none here
    return made(*(values.get("args", ()) if isinstance(values, dict) else values))


def _loads(content: bytes, *, buffers: Iterable[Any] = ()) -> Any:
    return _Unpickler(io.BytesIO(content), buffers=buffers).load()


@contextlib.contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Let distributed unpickle bytes and builtin exceptions alone, in this process, while in the context."""
    module: Any = distributed.protocol.pickle  # its functions use the name `pickle` in it
    before, module.pickle = module.pickle, SimpleNamespace(**{**vars(pickle), "loads": _loads})
    try:
        if not issubclass(module.loads(pickle.dumps(UserError)), Foreign):
            raise UserError(f"--executor dask: distributed {distributed.__version__} is not supported; install another")
        yield
    finally:
        module.pickle = before


class Client(distributed.Client):
    """A client that ignores what else workers may send: texts and warnings to print, and tracebacks."""

    _default_event_handlers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def _handle_task_erred(self, key: Any = None, exception: Any = None, traceback: Any = None) -> None:
        # The method of the base fails for what is no exception or no traceback, and then the task never ends.
        with contextlib.suppress(Exception):
            exception = _loads(exception)
        super()._handle_task_erred(key, exception if isinstance(exception, Exception) else Foreign())


@contextlib.contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to a scheduler; raise a UserError if none answers."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # this program has messages of its own
    with nothing_unpickled(), contextlib.ExitStack() as stack:
        try:
            _ask(address)
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # distributed raises almost any, also for what is no scheduler
            reason = " ".join(error_text(error, LONGEST_REASON).split())
            raise UserError(
                f"--cluster address={address}: no Dask scheduler answers there ({reason}); start one, or give the "
                "address that it prints"
            ) from error
        yield stack.enter_context(client)


def _ask(address: str) -> None:
    """Raise an exception unless a scheduler answers in time: a client waits for the first answer for ever."""
    answers: SimpleQueue[Any] = SimpleQueue()

    async def identify() -> None:
        security = Security().get_connection_args("client")
        async with distributed.rpc(address, connection_args=security, deserializers=["msgpack"]) as server:
            identity = await server.identity()
        if not isinstance(identity, dict) or identity.get("type") != "Scheduler":
            raise ValueError("it is something else")

    def ask() -> None:
        try:
            answers.put(asyncio.run(asyncio.wait_for(identify(), CONNECT_SECONDS)))
        except Exception as error:
            answers.put(error)

    # In a thread, as a notebook has an event loop of its own, and so that Ctrl-C need not wait for the answer.
    threading.Thread(target=ask, daemon=True).start()
    if (answer := answers.get()) is not None:
        raise answer
