"""JSON: JSON Schema as natural schemas and back, and values as JSON text and back.

`schema` is the entry for JSON Schema, which `reader` reads. `values` reads events that people write as JSON,
by the topic's schema. `text` writes any value as JSON text that reads back to the same value.
"""
