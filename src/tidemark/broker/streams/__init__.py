"""Streams: what a broker knows of each pubend, what it still asks for, and on whose behalf."""
