"""The formats that Tidemark's messages are measured beside.

Each format is used as an expert would use it: whatever does not depend on the message (paths, types,
decoders, accessors) is prepared once. Numbers come back as int, strings as str, an absent field as None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

from tidemark.lab.bench.messages.samples import Sample, tree_of
from tidemark.message.schema import Schema
from tidemark.message.types import Path

#: Fetches one field, or the fields of a set in order, from the bytes of a message.
Fetch = Callable[[bytes], Any]
FetchSet = Callable[[bytes], Sequence[Any]]

Json = dict[str, Any]


class Format(Protocol):
    """Messages of one sample schema in one format."""

    def encode(self, value: Json) -> bytes:
        """Returns the bytes of a message."""

    def one(self, path: Path) -> Fetch:
        """Returns a function that fetches one field."""

    def several(self, paths: Sequence[Path]) -> FetchSet:
        """Returns a function that fetches these fields in order."""


def formats() -> dict[str, Callable[[Sample], Format]]:
    """Returns every format by name, Tidemark first; ModuleNotFoundError when one is not installed."""
    import msgspec

    from tidemark.lab.bench.messages import xml_peers

    return {
        TIDEMARK: Tidemark,
        DOM: xml_peers.Dom,
        "XML ElementTree": xml_peers.ElementTree,
        "XML lxml": xml_peers.Lxml,
        "JSON msgspec": lambda sample: Msgspec(sample, msgspec.json, needed_only=False),
        "JSON msgspec, needed": lambda sample: Msgspec(sample, msgspec.json, needed_only=True),
        "msgpack msgspec": lambda sample: Msgspec(sample, msgspec.msgpack, needed_only=False),
        "msgpack msgspec, needed": lambda sample: Msgspec(sample, msgspec.msgpack, needed_only=True),
        "protobuf": Protobuf,
    }


TIDEMARK = "Tidemark"
DOM = "XML DOM (minidom)"


class Tidemark:
    """Accessors into the raw bytes."""

    def __init__(self, sample: Sample) -> None:
        self._schema = Schema.parse(sample.text)

    def encode(self, value: Json) -> bytes:
        """A flat tuple."""
        return self._schema.encode(value)

    def one(self, path: Path) -> Fetch:
        """The accessor itself."""
        return self._schema.accessor(path)

    def several(self, paths: Sequence[Path]) -> FetchSet:
        """One accessor for all of them."""
        return self._schema.accessors(paths)


class Msgspec:
    """Typed structs, either of the whole message or of the needed fields only: msgspec skips the rest."""

    def __init__(self, sample: Sample, codec: Any, *, needed_only: bool) -> None:
        self._sample = sample
        self._codec = codec
        self._encode = codec.Encoder().encode
        self._needed_only = needed_only
        self._whole = codec.Decoder(self._struct("Message", tree_of(sample.paths)))

    def encode(self, value: Json) -> bytes:
        """Nested maps; what is absent is left out."""
        encoded: bytes = self._encode(value)
        return encoded

    def one(self, path: Path) -> Fetch:
        """Decode, then one attribute path."""
        return self.several((path,))

    def several(self, paths: Sequence[Path]) -> FetchSet:
        """Decode, then all attribute paths in one call."""
        decoder = self._whole
        if self._needed_only:
            decoder = self._codec.Decoder(self._struct("Needed", tree_of(paths)))
        decode, get = decoder.decode, attrgetter(*(".".join(path) for path in paths))
        return lambda data: get(decode(data))

    def _struct(self, name: str, tree: Json, *, lacking: bool = False) -> Any:
        """Returns a struct type; if it may lack its fields they default to None."""
        from msgspec import defstruct

        atom: Any = int if self._sample.kind == "int" else str
        fields: list[Any] = []
        for key, inner in tree.items():
            if inner is None:
                fields.append((key, atom | None, None) if lacking else (key, atom))
                continue
            may_lack = key in self._sample.optional_pieces
            struct = self._struct(key, inner, lacking=may_lack)
            fields.append((key, struct, struct()) if may_lack else (key, struct))
        # Frozen, so that one absent piece can be the default of all; without cycles, so not tracked.
        return defstruct(name, fields, frozen=True, gc=False, kw_only=True)


class Protobuf:
    """A message class made from a descriptor; one object is parsed into again and again."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._message = _message_class(sample)()

    def encode(self, value: Json) -> bytes:
        """Nested messages; what is absent is left out."""
        message = type(self._message)()
        _fill(message, value)
        data: bytes = message.SerializeToString()
        return data

    def one(self, path: Path) -> Fetch:
        """Parse, then the attribute path."""
        message, parse, get = self._message, self._message.ParseFromString, self._getter(path)

        def fetch(data: bytes) -> Any:
            parse(data)
            return get(message)

        return fetch

    def several(self, paths: Sequence[Path]) -> FetchSet:
        """Parse, then all attribute paths, in one call where none can be absent."""
        message, parse = self._message, self._message.ParseFromString
        get: Callable[[Any], Any] = attrgetter(*(".".join(path) for path in paths))
        if any(self._sample.may_lack(path) for path in paths):
            getters = [self._getter(path) for path in paths]

            def get(message: Any) -> list[Any]:
                return [getter(message) for getter in getters]

        def fetch(data: bytes) -> Any:
            parse(data)
            return get(message)

        return fetch

    def _getter(self, path: Path) -> Callable[[Any], Any]:
        if not self._sample.may_lack(path):
            return attrgetter(".".join(path))
        outer, piece, inner = attrgetter(".".join(path[:-2])), path[-2], attrgetter(".".join(path[-2:]))

        def get(message: Any) -> Any:
            area = outer(message)
            return inner(area) if area.HasField(piece) else None

        return get


def _message_class(sample: Sample) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name=f"{sample.name}.proto", package="bench", syntax="proto3")
    _describe(file.message_type.add(name="Message"), tree_of(sample.paths), sample.kind)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("bench.Message"))


def _describe(message: Any, tree: Mapping[str, Any], kind: str) -> None:
    """Fields are numbered in order; a tuple is a message type inside its message."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    # Of protobuf's integers the fixed one is the fastest, and the smallest for numbers of any size.
    atom = FieldDescriptorProto.TYPE_SFIXED32 if kind == "int" else FieldDescriptorProto.TYPE_STRING
    for number, (name, inner) in enumerate(tree.items(), start=1):
        field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if inner is None:
            field.type = atom
            continue
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = name.title()
        _describe(message.nested_type.add(name=name.title()), inner, kind)


def _fill(message: Any, value: Mapping[str, Any]) -> None:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), inner)
        else:
            setattr(message, name, inner)
