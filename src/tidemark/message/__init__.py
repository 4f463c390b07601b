"""Messages: the schema language, flat tuples, the codec and event batches, without I/O (docs/messages.md).

`schema.Schema` is the entry: it encodes and decodes messages and reads single fields. Below it are `types`
(the tree of a schema), `parse` and `text` (its text), `names`, `members` and `validate` (what it may hold)
and the `codec` package (the bytes). `batches` holds many messages in one buffer and their fields as columns.
`foreign` converts from and to dataclasses, JSON and Arrow. `evolve` reads messages of another version of a
schema, and `registry` knows the versions of every topic. `topic_selector` has a topic pattern with a
selector, both as text. `show` prints a schema for people, and `error_path` puts the path of the wrong part
into an error.
"""

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.evolve import Resolution, UnknownCase, check_compatible
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema, Typed

__all__ = [
    "BatchBuilder",
    "EventBatch",
    "Registry",
    "Resolution",
    "Schema",
    "Shape",
    "Typed",
    "UnknownCase",
    "check_compatible",
]
