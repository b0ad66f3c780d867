"""Claims that are tested on a sweep, and their verdicts."""
