"""The benchmark of the data pipeline on Spark."""
