"""Selectors over whole batches, as array operations."""
