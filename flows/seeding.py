"""Initial weights that depend only on a seed and a path in the model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, path: str) -> Iterator[None]:
    """Draw from torch's CPU generator as seeded by (seed, path); restore its former state afterwards.

    Every module that is built under its own path draws the same weights whatever its neighbours draw, so that
    two models which differ in one layer start from equal weights everywhere else. Only the CPU generator is
    used: build a model on the CPU and move it.
    """
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the accelerators, whose state would not be restored.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        yield
