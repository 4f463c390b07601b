"""Reading from Spark: the format "tidemark", its scans, offsets and partitions."""
