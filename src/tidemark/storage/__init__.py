"""Bytes on disk: the log volume, the event log, the PFS and the tables; all of it blocks."""
