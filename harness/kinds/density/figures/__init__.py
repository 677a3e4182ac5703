"""Figures of density suites, one per file (see `harness.reporting.figures.figures`)."""
