"""Run trials on this machine, one process each."""
