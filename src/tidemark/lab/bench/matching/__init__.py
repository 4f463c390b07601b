"""The benchmark of the matcher."""
