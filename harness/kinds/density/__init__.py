"""Density trials: train a flow and report its likelihood."""
