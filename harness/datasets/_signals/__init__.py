"""Read and cut recordings."""
