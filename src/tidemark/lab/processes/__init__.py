"""Real processes under test: brokers and clients that may be killed, their ledgers, a faulty proxy, Spark engines."""
