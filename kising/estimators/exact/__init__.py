"""Exact averages by enumeration of the hidden states."""
