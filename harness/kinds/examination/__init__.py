"""Examinations: compute properties of a layer as a matrix."""
