"""Runtime trials: time the operations of layers side by side."""
