"""Find the lattice that values lie on, and store them exactly."""
