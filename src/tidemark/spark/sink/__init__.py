"""Writing from Spark: rows become events, staged by tasks and published exactly once."""
