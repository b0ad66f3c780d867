"""Sweeps: from a YAML file to rows in parquet, on any number of cores, through any number of interruptions."""
