"""JSON: JSON Schema as natural schemas, and values as JSON text and back."""
