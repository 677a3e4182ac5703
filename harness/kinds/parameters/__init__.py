"""Parameter trials: count the parameters of flows."""
