"""Recordings from files: readers by kind of file, tables, spike times and trials."""
