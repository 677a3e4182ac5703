"""A real SLURM on one machine, run by the current user; a fixture starts it, so this file has no tests.

One controller and a daemon for each node, without accounting, control groups, munge or system daemons. They write to
one folder only.
"""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

CONFIGURATION = """\
ClusterName=small
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ReturnToService=2
KillWait=2
{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=6\n"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")


def missing():
    """Return the missing programs."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


class SmallSlurm:
    """A running SLURM, used as a context manager."""

    def __init__(self, folder, nodes=1):
        self.folder = Path(folder)
        self.nodes = [f"node{number + 1}" for number in range(nodes)]
        self.configuration = self.folder / "slurm.conf"
        self.daemons = {}

    def __enter__(self):
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        controller_port, *ports = free_ports(1 + len(self.nodes))
        nodes = [NODE.format(name=node, host=host, port=port) for node, port in zip(self.nodes, ports, strict=True)]
        about = {"host": host, "user": getpass.getuser(), "folder": self.folder, "nodes": "".join(nodes)}
        self.configuration.write_text(CONFIGURATION.format(**about, controller_port=controller_port))
        try:
            self._start("slurmctld", "slurmctld", "-D", "-c")
            for node in self.nodes:
                self.start_node(node)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def environment(self):
        """Return the environment of programs that use this cluster."""
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        return os.environ | {"SLURM_CONF": str(self.configuration), "PATH": path}

    def ask(self, *command):
        """Return the output of a program of SLURM."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def start_node(self, node="node1"):
        """Start the daemon of a node, and wait until the controller knows it."""
        self._start(node, "slurmd", "-D", "-N", node)
        end = time.monotonic() + 30
        while True:
            try:
                state = self.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%t").strip()
            except subprocess.CalledProcessError as error:
                state = error.stderr
            if state in ("idle", "mix", "alloc"):
                return
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons.values()):
                raise RuntimeError(f"SLURM does not start ({state}):\n{self.output()}")
            time.sleep(0.1)

    def kill_node(self, node="node1"):
        """Simulate a power cut: end the daemon of a node and all its jobs."""
        self.daemons[node].kill()
        self.daemons.pop(node).wait()
        for pid in self._of_jobs(node):
            kill(pid)

    def clear(self):
        """Cancel every job, and wait until the queue is empty."""
        for node in self.nodes:
            if node not in self.daemons:
                self.start_node(node)
        self.ask("scancel", "--user", getpass.getuser())
        end = time.monotonic() + 60
        while self.ask("squeue", "--noheader").strip():
            if time.monotonic() > end:
                raise RuntimeError(f"jobs do not end:\n{self.ask('squeue')}")
            time.sleep(0.2)

    def stop(self):
        """End everything."""
        if "slurmctld" in self.daemons and self.daemons["slurmctld"].poll() is None:
            subprocess.run(["scancel", "--state=PENDING"], env=self.environment, capture_output=True, timeout=60)
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        for pid in self._of_jobs():
            kill(pid)
        self.daemons.clear()

    def output(self):
        """Return the last output of the daemons."""
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob("*.output")))

    def _start(self, name, *command):
        with (self.folder / f"{name}.output").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                executable=shutil.which(command[0], path=self.environment["PATH"]),
            )  # fmt: skip

    def _of_jobs(self, node=None):
        """Return the processes of jobs, of one node or all: the step daemons and all their descendants."""
        children, keepers, there, own = {}, [], set(), f"SLURM_CONF={self.configuration}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
                keeps = (entry / "cmdline").read_bytes().startswith(b"slurmstepd:")
                environment = (entry / "environ").read_bytes().split(b"\0")
                if keeps and own in environment:
                    keepers.append(int(entry.name))
                if node is not None and f"SLURMD_NODENAME={node}".encode() in environment:
                    there.add(parent)
            except OSError:
                continue
        keepers = [keeper for keeper in keepers if node is None or keeper in there]
        processes = []
        while keepers:
            processes.append(keepers.pop())
            keepers += children.get(processes[-1], [])
        return processes


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def free_ports(count):
    """Return ports without a listener."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
