"""Messages: the flat-tuple form of a schema, values to bytes and back, single fields."""
