"""What a candidate will cost: measured and added up as for a density trial."""

from harness.kinds.density.probe import run, seconds

__all__ = ["run", "seconds"]
