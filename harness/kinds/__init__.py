"""Kinds of trials, one folder each: how a trial runs, and the tables and figures of its results."""
