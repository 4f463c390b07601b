"""The archive as a Structured Streaming query: source -> foreachBatch -> Delta.

`query.ArchiveQuery` is the entry: it starts the query, watches it, and starts it again after a failure. In
each micro-batch

1. `source.ArchiveSource` finds what brokers have beyond what the archive covers (`planning.ArchivePlanner`),
   and its tasks fetch that, as a row for each event (`envelopes`);
2. `batch.written` lets the same tasks write the rows into Parquet files, and syncs them;
3. `Archive.take` commits the files to the tables, saves the state and tells the pubends, as for the engine
   that runs without Spark.

`choice.chosen_engine` decides which engine runs. `maintenance_thread` merges files and removes old history
beside the query.
"""
