"""Suites of claims: other suites, with a judge that compares their results with each claim."""
