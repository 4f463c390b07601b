"""The processes of a system benchmark: the broker, publishers, subscribers, and what they share."""
