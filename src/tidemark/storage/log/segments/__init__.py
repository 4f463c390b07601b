"""Segment files of the log volume.

`segment` is the format of a file and reads what is in one, by its footer or else by `scan`, record by record.
`tail` is the last segment, which is being written, and `open_segments` has the open files of all segments and
removes those whose records are all chopped. `durable_end` says how far a volume is on
the platter.
"""
