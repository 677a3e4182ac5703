"""Read, select and pool images."""
