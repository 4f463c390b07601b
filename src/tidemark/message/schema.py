"""A schema ready for use: its natural form, its flat form, and its messages to bytes and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache, partial
from hashlib import sha256
from struct import Struct, unpack_from
from typing import Any

from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.codec.access import Accessor, enumeration_accessor, leaf_accessor, slot_finder
from tidemark.message.codec.decode import MessageDecoder
from tidemark.message.codec.encode import MessageEncoder
from tidemark.message.codec.flat import LEAVES_MAX, Flat, LeafNode, Node, VariantNode, held
from tidemark.message.codec.layout import FORMAT
from tidemark.message.codec.lazy import lazy_property
from tidemark.message.codec.many import many_accessor
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.message.foreign.dataclasses import from_dataclass, to_value
from tidemark.message.foreign.infer import infer
from tidemark.message.parse import parse, parse_type
from tidemark.message.text import schema_text, type_text
from tidemark.message.types import STRING, Atomic, Dynamic, List, Path, Type, path_text
from tidemark.message.validate import validate

#: text of the schema that a dynamic value carries
DYNAMIC_SCHEMA_BYTES_MAX = 16_384
#: Parsed schemas of dynamic values that are kept, of at most so many bytes each: a parsed one takes up to a
#: hundred times its text.
_DYNAMIC_SCHEMAS_KEPT = 256
_DYNAMIC_SCHEMA_KEPT_BYTES_MAX = 1 << 10
#: A schema without references whose text is no longer than this cannot have more than LEAVES_MAX fields: each
#: takes three characters at the least.
_SMALL_TEXT_CHARS = 3 * LEAVES_MAX
#: Characters of a text for each node of its flat form, about.
_NODE_CHARS = 6


class Schema:
    """One schema. Schemas with equal canonical texts are equal."""

    def __init__(
        self,
        root: Type,
        definitions: Mapping[str, Type] | None = None,
        *,
        name: str = "",
        rest: Rest = no_rest,
    ) -> None:
        self.root = root
        self.definitions: dict[str, Type] = dict(definitions or {})
        self.name = name
        self._named: dict[str, Schema] = {}
        self._accessors: dict[Path, Accessor] = {}
        validate(root, self.definitions, rest)
        self.__dict__["text"] = schema_text(root, self.definitions, rest)
        #: What the schema counts for where the memory of schemas is bounded by the length of their texts. A
        #: reference is short, and what it stands for is written out wherever it is.
        self.weight = len(self.text)
        if self.definitions:
            size = self._flatten(0, rest)
            for each in self.definitions:
                size = self.named(each)._flatten(size, rest)
            self.weight = max(len(self.text), _NODE_CHARS * size)
        elif len(self.text) > _SMALL_TEXT_CHARS:
            self._flatten(0, rest)  # raises SchemaError if there are too many fields

    @lazy_property
    def text(self) -> str:
        """The canonical text."""
        return schema_text(self.root, self.definitions)

    @lazy_property
    def fingerprint(self) -> int:
        """64 bits of the text's SHA-256, by which every batch names the schemas of its messages."""
        return fingerprint_of(self.text)

    # What takes most of the memory is made when it is first used: a broker knows many schemas, encodes none
    # of them and looks into the messages of few.

    @lazy_property
    def flat(self) -> Flat:
        """The flat form."""
        return Flat(self.root, self.definitions)

    def _flatten(self, nodes: int, rest: Rest) -> int:
        """Make the flat form after so many nodes of others; returns how many nodes there are then."""
        flat = self.__dict__["flat"] = Flat(self.root, self.definitions, rest, nodes=nodes)
        return flat.size

    @lazy_property
    def _encoder(self) -> MessageEncoder:
        return MessageEncoder(self.flat, self)

    @lazy_property
    def _decoder(self) -> MessageDecoder:
        # Without a reference back to the schema, where that is possible: a schema that nobody uses any more
        # is freed at once then, and not when the collector of garbage looks for circles.
        return MessageDecoder(self.flat, None if self.is_plain else self)

    @classmethod
    def parse(cls, text: str) -> Schema:
        """The schema that a text describes.

        SchemaError if it is not one (SchemaSyntaxError with the place).
        """
        return cls._parse(text, no_rest)

    @classmethod
    def _parse(cls, text: str, rest: Rest) -> Schema:
        """The same for Tidemark's own threads: `rest` is called every few fields."""
        parsed = parse(text, rest)
        return cls(parsed.root, parsed.definitions, name=parsed.name, rest=rest)

    @classmethod
    def of(cls, sample: Any) -> Schema:
        """The schema of a dataclass, or the schema inferred from a sample value."""
        if isinstance(sample, type) and is_dataclass(sample):
            return cls(*from_dataclass(sample), name=sample.__name__)
        return cls(infer(sample))

    def encode(self, value: Any) -> bytes:
        """The message of a dict or dataclass instance; EncodeError with the path if it does not fit.

        Values that messages do not have, such as a UUID or a number of numpy, are converted: see
        docs/messages.md.
        """
        if is_dataclass(value) and not isinstance(value, type):
            return self._encoder.encode(to_value(value))
        try:
            return self._encoder.encode(value)
        except EncodeError as error:
            # Most values need no conversion, and do not pay for it.
            return self._encode_converted(value, error)

    def _encode_converted(self, value: Any, refused: EncodeError) -> bytes:
        try:
            return self._encoder.encode(to_value(value))
        except EncodeError:
            raise refused from None

    def decode(self, data: bytes) -> Any:
        """The value of a message; DecodeError with the path if the bytes are not a message of this schema."""
        return self._decoder.decode(bytes(data))

    @lazy_property
    def is_plain(self) -> bool:
        """Whether every field is a single atomic value: no lists, and no messages inside messages."""
        return all(leaf.depth == 0 and isinstance(leaf.basic, Atomic) for leaf in self.flat.leaves)

    @property
    def is_ready(self) -> bool:
        """Whether what reads messages is made; for thousands of fields that takes tens of milliseconds."""
        return "_decoder" in self.__dict__ and "is_plain" in self.__dict__

    def make_ready(self, rest: Rest = no_rest) -> None:
        """Make what reads messages, unless it is made; a schema that nobody else has yet, on any thread."""
        if "flat" not in self.__dict__:
            self._flatten(0, rest)
        if not self.is_ready:
            _ = self.is_plain, self._decoder

    def check(self, data: bytes) -> None:
        """Raise what `decode` would raise, without making the value where that is not needed."""
        if self.is_plain:
            self._decoder.check(data)
        else:
            self._decoder.decode(data)

    def accessor(self, path: str | Path) -> Accessor:
        """A function that reads one field from the bytes of a message, in constant time.

        The function returns None where the field is absent. SchemaError if the schema has no such path.
        """
        key = self.path(path)
        found = self._accessors.get(key)
        if found is None:
            found = self._accessors[key] = self._make_accessor(key)
        return found

    def accessors(self, paths: Sequence[str | Path]) -> Callable[[bytes], tuple[Any, ...]]:
        """A function that reads several fields of a message at once, in this order.

        It is faster than an accessor for each of them.
        """
        keys = [self.path(path) for path in paths]
        nodes = [held(self.flat.nodes[key]) if key in self.flat.nodes else None for key in keys]
        leaves = [node.leaf for node in nodes if isinstance(node, LeafNode)]
        if len(leaves) < len(keys):
            single = [self.accessor(key) for key in keys]
            return lambda message: tuple([access(message) for access in single])
        loads = [partial(self._decoder.load, leaf) for leaf in leaves]
        return many_accessor(self.flat, leaves, loads)

    def update(self, message: bytearray | memoryview, path: str | Path, value: Any) -> None:
        """Overwrite one fixed-width field in place; EncodeError if this message does not have it."""
        key = self.path(path)
        node = held(self.flat.nodes[key])
        where = path_text(key)
        if (
            not isinstance(node, LeafNode)
            or node.leaf.width is None
            or not isinstance(node.leaf.basic, Atomic)
        ):
            raise EncodeError("only a field of fixed width can be changed in place", path=where)
        slot = slot_finder(self.flat, node.leaf)(bytes(message[: self.flat.code_width]))
        if slot is None:
            raise EncodeError("this message does not have the field", path=where)
        if slot + node.leaf.width > len(message):
            raise DecodeError("the message is truncated here", path=where)
        stored = self._encoder.store(node.leaf, value)
        Struct("<" + FORMAT[node.leaf.basic.kind]).pack_into(message, slot, stored)

    def path(self, path: str | Path) -> Path:
        """`path` as a tuple of names, a string being split at its dots.

        SchemaError if there is no such field.
        """
        key = tuple(path.split(".")) if isinstance(path, str) else path
        if self.holder(key) is None:
            raise SchemaError(f"{path_text(key)}: the schema has no such field")
        return key

    def holder(self, path: Path) -> Path | None:
        """The field that holds `path`: `path` itself, or the dynamic field that it leads into.

        None if neither.
        """
        if path in self.flat.nodes:
            return path
        for length in range(len(path) - 1, 0, -1):
            node = self.flat.nodes.get(path[:length])
            if node is not None:
                return path[:length] if _value_type(node) == Dynamic() else None
        return None

    # The protocol `FieldTypes` of message.batches.columns, which selectors are checked and indexed by.

    @property
    def open(self) -> bool:
        """A schema by itself is closed: it names all its fields."""
        return False

    def type_of(self, path: Path) -> Type | None:
        """The type at `path` without options, None if there is no such field; of an enumeration, a string.

        A field inside a dynamic field is dynamic too: its type is known per event.
        """
        holder = self.holder(path)
        return None if not holder else _value_type(self.flat.nodes[holder])

    def paths(self) -> Sequence[Path]:
        """Every path that can be named."""
        return self._paths

    @lazy_property
    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in self.flat.nodes if path)

    # The protocol `NestedMessages` of message.codec.nested, for messages inside messages.

    def encode_dynamic(self, value: Any, depth: int) -> bytes:
        """The text of the value's schema and its message, so that a reader needs nothing else."""
        inner, value = (value.schema, value.value) if isinstance(value, Typed) else (None, value)
        text = (inner.text if inner else type_text(infer(value))).encode()
        if len(text) > DYNAMIC_SCHEMA_BYTES_MAX:
            raise EncodeError(f"the shape of a dynamic value takes over {DYNAMIC_SCHEMA_BYTES_MAX} bytes")
        message = _dynamic_schema(text)._encoder.encode(value, depth)
        return len(text).to_bytes(4, "little") + text + message

    def decode_dynamic(self, data: bytes, depth: int) -> Any:
        """The dynamic value in `data`, decoded by the schema that it carries."""
        if len(data) < 4:
            raise DecodeError("a dynamic value without a schema")
        (length,) = unpack_from("<I", data)
        if length > min(DYNAMIC_SCHEMA_BYTES_MAX, len(data) - 4):
            raise DecodeError(f"a dynamic value claims {length} bytes of schema")
        try:
            schema = _dynamic_schema(data[4 : 4 + length])
        except (SchemaError, UnicodeDecodeError) as error:
            raise DecodeError(f"the schema of a dynamic value is wrong: {error}") from None
        return schema._decoder.decode(data[4 + length :], depth)

    def encode_named(self, name: str, value: Any, depth: int) -> bytes:
        """The message of a value of one of this schema's named schemas."""
        return self.named(name)._encoder.encode(value, depth)

    def decode_named(self, name: str, data: bytes, depth: int) -> Any:
        """The value of a message of one of this schema's named schemas."""
        return self.named(name)._decoder.decode(data, depth)

    def named(self, name: str) -> Schema:
        """One of this schema's named schemas, as a schema of its own."""
        found = self._named.get(name)
        if found is None:
            # Its parts were checked with the whole. To check and write them again for each of thousands of
            # names would take minutes.
            found = self._named[name] = Schema.__new__(Schema)
            found.root, found.definitions, found.name = self.definitions[name], self.definitions, name
            found.weight = self.weight
            found._named, found._accessors = self._named, {}
        return found

    def _make_accessor(self, path: Path) -> Accessor:
        holder = self.holder(path)
        assert holder is not None
        if holder != path:
            outer, rest = self.accessor(holder), path[len(holder) :]
            return lambda message: value_at(outer(message), rest)
        node = held(self.flat.nodes[path])
        if isinstance(node, LeafNode):
            leaf = node.leaf
            return leaf_accessor(self.flat, leaf, partial(self._decoder.load, leaf))
        if isinstance(node, VariantNode) and node.style == "enumeration":
            return enumeration_accessor(self.flat, node)
        decoder = self._decoder
        return lambda message: value_at(decoder.decode(bytes(message)), path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Schema({self.text!r})"


def fingerprint_of(text: str) -> int:
    """The fingerprint of the schema with this canonical text."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "little")


class Typed:
    """A value for a `dynamic` field with the schema to store it by, where the inferred one will not do."""

    def __init__(self, schema: Schema, value: Any) -> None:
        if schema.definitions:
            raise SchemaError("the schema of a dynamic value cannot refer to named schemas")
        self.schema = schema
        self.value = value


def value_at(value: Any, path: Path) -> Any:
    """The part of a decoded value that a path names; None where the value has no such part."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _dynamic_schema(text: bytes) -> Schema:
    if len(text) > _DYNAMIC_SCHEMA_KEPT_BYTES_MAX:
        return Schema(parse_type(text.decode()))
    return _kept_dynamic_schema(text)


@lru_cache(maxsize=_DYNAMIC_SCHEMAS_KEPT)
def _kept_dynamic_schema(text: bytes) -> Schema:
    return Schema(parse_type(text.decode()))


def _value_type(node: Node) -> Type:
    """The type of the Python value that a node has for a selector."""
    match held(node):
        case LeafNode() as leaf_node:
            item: Type = leaf_node.type
            for _ in range(leaf_node.leaf.depth):
                item = List(item)
            return item
        case VariantNode(style="enumeration"):
            return STRING
        case other:
            return other.type
