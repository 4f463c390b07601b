"""Segment files of the log volume: their format, the one being written, and reading them."""
