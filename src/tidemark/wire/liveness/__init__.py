"""Liveness: whether the other side of a connection is still there, judged without I/O and without a clock."""
