"""The disk that storage writes to: its interface, the real one, and one in memory that fails on command."""
