"""The archive as a streaming query."""
