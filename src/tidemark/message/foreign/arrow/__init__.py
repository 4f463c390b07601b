"""Arrow: natural types as Arrow types, and events as record batches and back.

`batches` is the entry for whole batches, `types` for types and `values` for single values. `columns` converts
one column of atomic values; `gather` makes arrays of nested fields out of messages, and `scatter` messages
out of arrays.
"""
