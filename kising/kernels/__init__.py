"""What compiled kernels are built from: jit settings, vectors and their mathematics, counter-based random numbers."""
