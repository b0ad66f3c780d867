"""Claims that a sweep is held against, and their verdicts."""
