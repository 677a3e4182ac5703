"""Figures of runtime suites, one per file (see `harness.reporting.figures.figures`)."""
