"""What lies on disk: the directory, parts, columns, checkpoints and their verification."""
