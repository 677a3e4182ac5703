"""Trial -> record: what one process does."""
