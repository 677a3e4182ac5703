"""Examinations of one layer as a matrix."""
