"""The benchmark of the persistent filtering subsystem."""
