"""The live page of a sweep: a small server that reads a sweep's directory."""
