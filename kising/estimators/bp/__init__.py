"""Belief propagation on the replicated system."""
