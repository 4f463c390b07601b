"""Planning and reading an archive: the one place from which the source, history and deep catch-up plan.

`pruning` decides by bounds which files and row groups may have what is wanted. `slices` cuts the rest into
pieces of bounded size. `row_test` is a selector as a test of Arrow columns, and `columnar` reads slices as
record batches, with only the columns that are asked for. History lets Spark's own Parquet reader read the
files (`spark.history_frames`), and deep catch-up needs whole events (`spark.archive.scan`).
"""
