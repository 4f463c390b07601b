"""Messages: the schema language, flat tuples, codec and event batches. No I/O.

`types` and `parse` are the language, `schema` puts it to use, `codec` has the bytes, `batches` many messages
at once, `foreign` the schemas and values of other worlds, `evolve` and `registry` what happens when
they change.
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
