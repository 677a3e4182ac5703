"""Linear algebra that several layers share."""
