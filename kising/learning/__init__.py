"""The M-step and the loop around both: starts, steps, verdict, scores."""
