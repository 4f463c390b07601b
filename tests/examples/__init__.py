"""Examples: the programs of `examples/`, run against brokers in processes of their own."""
