"""Processes: the broker process itself, the processes beside it, and several brokers on one machine."""
