"""Schemas and values of Python, JSON and Arrow, as natural schemas and message values and back.

`dataclasses` converts classes and instances, by the rules of `binding`. `infer` finds the type of a sample
value, and the least type that several fit. `json` reads and writes JSON Schema, and values as JSON. `arrow`
converts types, values and whole batches. `references` handles schemas that contain themselves.
`toml_text` reads TOML that came from outside.
"""
