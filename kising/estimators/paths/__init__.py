"""Sampling whole paths through time: hidden spins that act on each other, and entries that are missing."""
