"""Bytes on disk: the log volume, the event log, the PFS and the tables. Every call may block.

`disk` is the interface to a directory, with a real one and one in memory. `log` multiplexes many log streams
onto segment files of one directory; `events` keeps the events of a pubend in such streams, and `pfs` which of
them matched which durable subscriber. `tables` has the rest, in SQLite. Each of them says what a crash may
lose and why that is safe. `tidemark.persistence` puts them together for a broker.
"""
