"""A thin link between two real brokers: history over it, live events beside it, in network namespaces."""
