"""What travels between brokers, and between brokers and clients."""
