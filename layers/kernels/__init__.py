"""Build and load the compiled kernels of csrc/."""
