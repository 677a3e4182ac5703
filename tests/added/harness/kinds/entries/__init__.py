"""Count the entries of an event."""
