"""Where batches run: the protocol, this process, and Ray."""
