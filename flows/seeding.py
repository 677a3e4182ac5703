"""Initial weights that depend on a seed and a place in the model, and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, path: str) -> Iterator[None]:
    """Draw from torch's CPU generator as seeded by (seed, path); its former state returns afterwards.

    Every module that is built under its own path draws the same weights whatever its neighbours draw, so that
    two models which differ in one layer start from equal weights everywhere else. Only the CPU generator is
    touched: build a model on the CPU and move it.
    """
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the accelerators as well, and nothing would restore them.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        yield
