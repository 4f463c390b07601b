"""The archive: pubend logs as Delta tables of Parquet, written exactly once and read back byte for byte."""
