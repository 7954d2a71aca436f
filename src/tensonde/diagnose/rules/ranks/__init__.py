"""Several ranks of one training: replicas that drift, data that all ranks share, ranks that wait for each other."""
