"""Match the results of two runs, compare them, and merge runs."""
