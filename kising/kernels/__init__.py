"""What every compiled kernel is made of: jit settings, vectors, counter-based random numbers."""
