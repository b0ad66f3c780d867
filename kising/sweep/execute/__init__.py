"""Where batches run: the protocol of executors, the batch loop, and execution in this process or on Ray."""
