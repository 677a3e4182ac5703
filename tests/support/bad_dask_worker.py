"""A preload of Dask workers that answer each trial with nonsense, `value($ANSWER)`; this file has no tests.

A command that unpickles a `Bomb` makes the file $BOMB.
"""

import json
import os
import pickle
import signal

from dask._task_spec import Task


class Bomb(Exception):
    def __reduce__(self):
        return os.system, (f"grep -aq executor /proc/$PPID/cmdline && touch {os.environ['BOMB']}",)


def value(answer, trial):
    match answer:
        case "object":
            return Bomb()
        case "exception":
            raise Bomb
        case "OSError":
            raise OSError(28, "No space left on device")
        case "dict":
            return {"files": {}, "fault": "", "code": 0, "lost": False}
        case "pickle":
            return pickle.dumps(Bomb())
        case "no record":
            return b'{"files": {}}\n'
        case "other trial":
            record = json.dumps({"id": "other", "trial": {}, "status": "ok", "format": 2}).encode()
            return json.dumps({"files": {f"records/{trial}.json": len(record)}}).encode() + b"\n" + record
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(answer)


async def dask_setup(worker):
    Task.__call__ = lambda task, *_, **__: value(os.environ["ANSWER"], task.key.rpartition("-")[0])
    for topic in ("all", "warn", "print"):  # of which clients unpickle or print some
        message = {"action": "remove-worker", "worker": worker.address, "trial": 1, "args": ["\x1b[31mprinted"]}
        worker.log_event(topic, message | {"message": pickle.dumps(Bomb())})
