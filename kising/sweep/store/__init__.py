"""A sweep on disk: directory, parts, columns, checkpoints, artifacts, and their verification."""
