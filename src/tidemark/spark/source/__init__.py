"""Reading from Spark: the format "tidemark", its scans, offsets and partitions.

The entry is `source.TidemarkSource`, which Spark finds by the format's name. On the driver, `scan.Planner`
turns checkpoint tokens (`offsets`) into tick ranges (`partitions`); in a task, `scan.SourceScan.read` reads
one range, from the broker and, where that has released history, from the archive (`reading.RangeReader`).
"""
