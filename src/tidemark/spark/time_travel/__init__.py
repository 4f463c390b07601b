"""The archive as it was: at a version of a table, or at a time.

`as_of.AsOf` says when, `versions.snapshot_as_of` returns the archive of then for all readers, and
`versions.versions` lists the versions that can still be read.
"""
