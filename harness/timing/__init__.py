"""Measure the time and the memory of a layer's operations."""
