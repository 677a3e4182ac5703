"""Parameter trials: count the parameters of built models."""
