"""Commands of the data pipeline: the archive, its state, and the audit."""
