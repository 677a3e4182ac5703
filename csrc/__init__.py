"""C++ and CUDA sources of the layers' kernels; a package only so that they can be located."""
