"""Publishing: events in numbered batches, sent again until they are on disk."""
