"""What tests share: judges, sample work, clusters and faults."""
