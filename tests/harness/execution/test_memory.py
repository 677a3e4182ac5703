"""Memory held by processes, as reported by the kernel."""

import mmap
import os
import subprocess
import sys

import pytest

from harness.core.isolation.descendants import descendants
from harness.execution.local.memory import MemoryWatch, held

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SIZE = 64 << 20


def fill(pages):
    """Write all pages a few at a time: one large value would itself take memory, which the allocator keeps."""
    for _ in range(SIZE >> 16):
        pages.write(b"1" * (1 << 16))


def test_memory_counts_once_it_is_written_and_mapped_files_do_not(tmp_path):
    before = held(os.getpid())
    # A new mapping: the allocator may reuse pages that were written before.
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as kept:
        untouched = held(os.getpid()) - before
        fill(kept)
        grown = held(os.getpid()) - before
    assert untouched < SIZE * 0.5 and SIZE * 0.9 < grown < SIZE * 1.5
    path = tmp_path / "array"
    path.write_bytes(b"1" * SIZE)
    before = held(os.getpid())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::4096]) > 0
        assert held(os.getpid()) - before < SIZE / 2
    assert held(2**22 + 1) == 0, "no such process"


def test_shared_memory_counts():
    before = held(os.getpid())
    with mmap.mmap(-1, SIZE) as shared:
        fill(shared)
        assert held(os.getpid()) - before > SIZE * 0.9


def test_the_memory_of_all_descendants_is_added():
    code = f"import time; kept = bytearray(b'1') * {SIZE}; print(flush=True); time.sleep(60)"
    command = ["sh", "-c", f'{sys.executable} -c "{code}" & {sys.executable} -c "{code}"']
    # They sleep instead of reading input: standard input of a background process is empty, so reading would end it.
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as shell:
        try:
            shell.stdout.readline(), shell.stdout.readline()
            assert len(descendants(shell.pid)) == 2
            assert set(MemoryWatch(SIZE * 3 // 2).over([shell.pid])) == {shell.pid}
            assert MemoryWatch(SIZE * 8).over([shell.pid]) == {}
        finally:
            os.killpg(shell.pid, 9)
