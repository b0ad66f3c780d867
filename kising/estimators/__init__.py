"""The E-step, an algorithm a file: averages over hidden spins, given the visible ones."""
