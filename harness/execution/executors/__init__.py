"""Executors, one per file (see `harness.execution.executor`)."""
