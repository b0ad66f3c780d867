"""The E-step: averages over hidden spins, given the visible ones. One algorithm per module or folder."""
