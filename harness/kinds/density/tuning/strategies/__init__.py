"""Strategies of a tuning, one per file (see `harness.kinds.density.tuning.strategy`)."""
