"""Event batches: many messages in one buffer, and their fields as columns."""
