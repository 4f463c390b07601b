"""The tables of a subscriber hosting broker, in SQLite or in memory.

`tables` is the entry: the rows, what may be done with them, and what a crash may lose of each table.
`sqlite_tables` keeps them in a file in the form of `rows`, `memory_tables` in memory for tests and the
simulator. `subscription` is the row of a durable subscription.
"""
