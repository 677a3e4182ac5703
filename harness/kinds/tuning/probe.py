"""Estimate the cost of a candidate of a tuning, as of a density trial."""

from harness.kinds.density.probe import run, seconds

__all__ = ["run", "seconds"]
