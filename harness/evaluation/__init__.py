"""Evaluate a trained flow: likelihood, nearest training examples, fidelity of samples."""
