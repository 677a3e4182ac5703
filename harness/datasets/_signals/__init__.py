"""Read, filter, cut and generate recordings."""
