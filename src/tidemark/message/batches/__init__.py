"""Event batches: many events in one buffer, and their fields as columns.

`batch` is the entry: EventBatch views the buffer, BatchBuilder makes one. `reader` (EventReader) reads the
events of a topic through one schema, whatever version each was written in, and serves the columns of a batch.
It uses `gather`, which reads one field of many messages with array operations. `scatter` goes the other way:
columns to messages, and `building` messages to a batch. `checking` finds events that cannot be decoded, and
`alike` finds out quickly that a batch has none. `compact` is the form in which logs keep batches. `columns`
has the types that a column is made of, `spans` copies many stretches of bytes.
"""
