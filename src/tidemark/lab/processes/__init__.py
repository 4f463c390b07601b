"""Real processes under test: brokers and clients that may be killed, ledgers, a faulty proxy, engines."""
