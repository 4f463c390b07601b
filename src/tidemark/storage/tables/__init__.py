"""The tables of a subscriber hosting broker, in SQLite or in memory."""
