"""How fast the kernels are: against NumPy doing the same maths, in one run."""
