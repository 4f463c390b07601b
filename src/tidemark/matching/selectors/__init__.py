"""Selectors: text to tree, checked, written out again, and read against one event."""
