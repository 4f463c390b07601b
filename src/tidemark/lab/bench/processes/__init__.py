"""The processes of a system benchmark: the broker, publishers, subscribers, and the counters they share."""
