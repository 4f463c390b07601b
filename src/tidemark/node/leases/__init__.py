"""Leases: clients that may be away, what waits for them, and the calls that bring them back."""
