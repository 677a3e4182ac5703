"""Examinations: compute properties of a layer as a matrix, or check it by every rule."""
