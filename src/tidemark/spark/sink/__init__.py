"""Writing from Spark: rows become events, which tasks stage and the driver publishes exactly once.

The entry is `sink.checked_sink`, which compares the columns with the topic (`row_encoder.check_fit`) before
anything runs; `sink.BatchSink` and `sink.StreamSink` are what Spark calls. A task encodes its rows
(`row_encoder.encoded`) and stages them (`staging.Staging.stage`); the driver's commit records the batch and
publishes it (`publishing.commit`).
"""
