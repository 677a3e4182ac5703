"""C++ and CUDA sources of the layers' kernels; nothing here is imported but for its place on disk."""
