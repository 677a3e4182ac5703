"""Estimate, compare and rank results over seeds."""
