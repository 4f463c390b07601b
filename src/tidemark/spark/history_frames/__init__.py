"""History: all events of a topic as a DataFrame, from the archive and the brokers together."""
