"""The flat-tuple transformation (gryphon-scalability IV.C): a natural schema becomes a super-variant of
flat tuples.

The tree of nodes mirrors the natural type after three rewrites. References are resolved; a reference that
recurs becomes a leaf of its own. Lists are pushed down to the leaves, so that a list of tuples becomes a
tuple of lists. A variant that a list holds becomes a leaf, its *variant box*. Lists are pushed down before
tuples are distributed over variants, so only the variant itself is boxed and its neighbours in the list's
tuple keep lists of their own.

What is left is tuples and variants over leaves. Distributing tuples over variants gives one flat tuple
for each way of choosing cases; the *multi-choice code* numbers those ways. Nothing is enumerated: a code
is a mixed-radix number read off the tree, and the layout of a code is derived when it is first met.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from math import prod
from typing import Literal, assert_never

from tidemark.errors import DecodeError, SchemaError
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.codec.rest import REST_EVERY, Rest, no_rest
from tidemark.message.types import (
    EMPTY,
    FIXED_WIDTH,
    Atomic,
    Dynamic,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
    absent_case,
    is_enumeration,
    is_spliced,
    names_of,
    option_item,
    path_text,
)

#: Leaves of one schema after references are written out; more are refused, since nested references can
#: multiply a small schema without end.
LEAVES_MAX = 4_096
#: Tuples, variants, lists and leaves of one schema and of its named schemas, likewise: nested references
#: multiply empty tuples too.
NODES_MAX = 65_536
#: References within each other, other than those that lead back to themselves.
REFERENCES_MAX = 100
#: Layouts kept for one schema; beyond that the least recently used one is dropped and derived again.
LAYOUTS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Recursive:
    """A reference that leads back into itself: a nested message of the named schema."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A variant under a list: a nested message of the variant's own flat form."""

    flat: Flat


#: What a leaf holds, inside `depth` lists.
Basic = Atomic | Dynamic | Recursive | Box


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A field of the flat tuples: one basic value, or lists of lists of it."""

    index: int
    path: Path
    basic: Basic
    #: number of lists around the basic value
    depth: int
    #: The leaf lies under a variant: only the flat tuples of some codes have it.
    optional: bool

    @property
    def width(self) -> int | None:
        """The bytes that every value takes; None if values differ in size and lie behind the header."""
        fixed = isinstance(self.basic, Atomic) and self.depth == 0
        return FIXED_WIDTH.get(self.basic.kind) if fixed and isinstance(self.basic, Atomic) else None


@dataclass(frozen=True, slots=True, eq=False)
class LeafNode:
    """A leaf in its place in the tree."""

    type: Type
    leaf: Leaf
    count: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class TupleNode:
    """Fields by name; the names of a spliced field are keys of this tuple's dict."""

    type: Tuple
    path: Path
    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    spliced: tuple[bool, ...]
    #: number of codes: the product of the fields' counts
    count: int


Style = Literal["option", "enumeration", "named"]


@dataclass(frozen=True, slots=True, eq=False)
class VariantNode:
    """Cases by name. Case c takes the codes starts[c] up to starts[c] + nodes[c].count - 1."""

    type: Variant
    path: Path
    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    absent: int | None
    style: Style
    starts: tuple[int, ...]
    #: number of codes: the sum of the cases' counts
    count: int

    def case_of(self, code: int) -> int:
        """The index of the case that `code`, a code of this node, chooses."""
        return bisect_right(self.starts, code) - 1

    def name_of(self, code: int | None) -> str | None:
        """The name of the case that `code` chooses; None for the absent case, or when `code` is None."""
        case = None if code is None else self.case_of(code)
        return None if case is None or case == self.absent else self.names[case]


@dataclass(frozen=True, slots=True, eq=False)
class ListNode:
    """A list whose item has been pushed down: its leaves hold lists of equal length."""

    type: List
    path: Path
    item: Node
    leaves: tuple[Leaf, ...]
    count: int = 1


Node = LeafNode | TupleNode | VariantNode | ListNode


class Flat:
    """The flat form of one schema. Immutable but for its cache of layouts."""

    def __init__(
        self,
        root: Type,
        definitions: Mapping[str, Type],
        rest: Rest = no_rest,
        *,
        within: Sequence[str] = (),
        nodes: int = 0,
    ) -> None:
        """`within` are the references that are written out around `root`, `nodes` the nodes made before."""
        builder = _Builder(definitions, within, nodes, rest)
        self.root: Node = builder.build(root, (), 0, optional=False)
        self.leaves: tuple[Leaf, ...] = tuple(builder.leaves)
        #: every path that can be named -> the node it reaches
        self.nodes: dict[Path, Node] = builder.nodes
        #: how many nodes were made, with those that were made before
        self.size = builder.size
        #: number of flat tuples in the super-variant
        self.count: int = self.root.count
        self.code_width: int = _code_width(self.count)
        # It holds the root and not this object: a schema that nobody uses any more is freed at once, and not
        # when the collector of garbage looks for circles.
        self.layout = lru_cache(maxsize=LAYOUTS_MAX)(partial(_layout, self.root, self.code_width))

    def active(self, code: int) -> Iterator[Leaf]:
        """The leaves of one flat tuple, in natural order."""
        assert 0 <= code < self.count
        return _active(self.root, code)

    def layout_of(self, message: bytes) -> CaseLayout:
        """The layout of the case that the message's code names; DecodeError if there is no such case."""
        width = self.code_width
        code = int.from_bytes(message[:width], "little")
        if len(message) < width or code >= self.count:
            raise DecodeError(f"no case has the multi-choice code {code}")
        return self.layout(code)

    def check_header(self, message: bytes | memoryview) -> None:
        """DecodeError unless the message begins with the code of a case and has room for its header."""
        width = self.code_width
        if len(message) < width:
            raise DecodeError("a message is shorter than its multi-choice code")
        code = int.from_bytes(message[:width], "little")
        if code >= self.count:
            raise DecodeError(f"no case has the multi-choice code {code}")
        if len(message) < self.layout(code).size:
            raise DecodeError("a message is shorter than the header of its case")


def held(node: Node) -> Node:
    """The node inside an option (or options); any other node itself. A path is the same for both."""
    while isinstance(node, VariantNode) and node.style == "option":
        assert node.absent is not None
        node = node.nodes[1 - node.absent]
    return node


def case_codes(node: TupleNode, code: int) -> Iterator[int]:
    """Split a tuple's code into the codes of its fields, first field in the lowest digit."""
    for child in node.nodes:
        code, digit = divmod(code, child.count)
        yield digit


def code_finder(root: Node, target: Node) -> Callable[[int], int | None]:
    """A function from a message's code to the code of `target` in it, or to None if it has no `target`."""
    steps = _route(root, target)
    assert steps is not None

    def find(code: int) -> int | None:
        for divisor, modulus, start in steps:
            code = code // divisor % modulus if modulus else code - start
            if not modulus and not 0 <= code < divisor:
                return None
        return code

    return find


def _route(node: Node, target: Node) -> list[tuple[int, int, int]] | None:
    """Steps from the code of `node` to that of `target`.

    (weight, count, 0) takes a field's digit out of a tuple's code; (count, 0, start) enters a case.
    """
    if node is target:
        return []
    weight = 1
    for at, child in enumerate(node.nodes if isinstance(node, TupleNode | VariantNode) else ()):
        rest = _route(child, target)
        if rest is not None and isinstance(node, VariantNode):
            return [(child.count, 0, node.starts[at]), *rest]
        if rest is not None:
            return [(weight, child.count, 0), *rest]
        weight *= child.count
    return None


def _layout(root: Node, code_width: int, code: int) -> CaseLayout:
    return CaseLayout(code, code_width, list(_active(root, code)))


def _active(node: Node, code: int) -> Iterator[Leaf]:
    match node:
        case LeafNode():
            yield node.leaf
        case ListNode():
            yield from node.leaves
        case TupleNode():
            for child, digit in zip(node.nodes, case_codes(node, code), strict=True):
                yield from _active(child, digit)
        case VariantNode():
            case = node.case_of(code)
            yield from _active(node.nodes[case], code - node.starts[case])
        case _:
            assert_never(node)


def _code_width(count: int) -> int:
    """The bytes of a multi-choice code: 0 for a single case, 1, 2, 4 or 8 while that is enough, else more.

    Codes of those widths can be read into arrays.
    """
    if count == 1:
        return 0
    width = ((count - 1).bit_length() + 7) // 8
    return next((size for size in (1, 2, 4, 8) if width <= size), width)


@dataclass(frozen=True, slots=True)
class _VariantForm:
    """What a variant is, wherever it stands."""

    names: tuple[str, ...]
    absent: int | None
    style: Style
    #: where the codes of each case start, if every case is one value or nothing; else empty
    starts: tuple[int, ...]

    @classmethod
    def of(cls, item: Variant) -> _VariantForm:
        """The form of a variant."""
        style: Style = "named"
        if option_item(item) is not None:
            style = "option"
        elif is_enumeration(item):
            style = "enumeration"
        is_simple = all(isinstance(case.type, Atomic) or case.type == EMPTY for case in item.cases)
        starts = tuple(range(len(item.cases))) if is_simple else ()
        return cls(names_of(item.cases), absent_case(item), style, starts)


class _Builder:
    """Writes out references and pushes lists down, numbering leaves and naming paths on the way."""

    def __init__(self, definitions: Mapping[str, Type], within: Sequence[str], size: int, rest: Rest) -> None:
        self._definitions = definitions
        self._rest = rest
        #: names of the references that are being written out around the current place
        self._open: list[str] = [*within]
        #: nodes so far
        self.size = size
        self.leaves: list[Leaf] = []
        self.nodes: dict[Path, Node] = {}
        #: the keys of `nodes` in the order in which they were named
        self._named: list[Path] = []
        #: identity of a variant -> its form; thousands of fields may share one type
        self._forms: dict[int, _VariantForm] = {}

    def build(self, item: Type, path: Path, depth: int, *, optional: bool) -> Node:
        node = self._node(item, path, depth, optional)
        self.nodes[path] = node
        self._named.append(path)
        return node

    def _node(self, item: Type, path: Path, depth: int, optional: bool) -> Node:
        self.size += 1
        if not self.size % REST_EVERY:
            self._rest()
        if self.size > NODES_MAX:
            reason = f"the schema has more than {NODES_MAX} parts in all, with its references written out"
            raise SchemaError(f"{path_text(path) or 'the schema'}: {reason}")
        match item:
            case Atomic() | Dynamic():
                return self._leaf(item, item, path, depth, optional)
            case Reference():
                return self._reference(item, path, depth, optional)
            case List():
                before, named = len(self.leaves), len(self._named)
                inner = self._node(item.item, path, depth + 1, optional)
                self._keep_only_leaves(named)
                return ListNode(item, path, inner, tuple(self.leaves[before:]))
            case Variant() if depth:
                box = Flat(item, self._definitions, self._rest, within=self._open, nodes=self.size)
                self.size = box.size
                return self._leaf(item, Box(box), path, depth, optional)
            case Variant():
                return self._variant(item, path)
            case Tuple():
                return self._tuple(item, path, depth, optional)
        assert_never(item)

    def _keep_only_leaves(self, first: int) -> None:
        """Forget the paths named since `first` that reach no leaf.

        Inside a list only leaves have a value of their own: the list of all their values.
        """
        inside, self._named[first:] = self._named[first:], []
        for key in inside:
            if isinstance(self.nodes.get(key), LeafNode):
                self._named.append(key)
            else:
                self.nodes.pop(key, None)

    def _leaf(self, item: Type, basic: Basic, path: Path, depth: int, optional: bool) -> LeafNode:
        if len(self.leaves) >= LEAVES_MAX:
            raise SchemaError(f"{path_text(path)}: the schema has more than {LEAVES_MAX} fields in all")
        leaf = Leaf(len(self.leaves), path, basic, depth, optional)
        self.leaves.append(leaf)
        return LeafNode(item, leaf)

    def _reference(self, item: Reference, path: Path, depth: int, optional: bool) -> Node:
        if item.name in self._open:
            return self._leaf(item, Recursive(item.name), path, depth, optional)
        if len(self._open) >= REFERENCES_MAX:
            reason = f"more than {REFERENCES_MAX} references within each other"
            raise SchemaError(f"{path_text(path) or 'the schema'}: {reason}")
        self._open.append(item.name)
        node = self._node(self._definitions[item.name], path, depth, optional)
        self._open.pop()
        return node

    def _tuple(self, item: Tuple, path: Path, depth: int, optional: bool) -> TupleNode:
        if not item.fields:
            return TupleNode(item, path, (), (), (), 1)
        names = names_of(item.fields)
        spliced = tuple([not field.name and is_spliced(field) for field in item.fields])
        nodes = tuple(
            [
                self._node(field.type, path, depth, optional)
                if inlined
                else self.build(field.type, (*path, name), depth, optional=optional)
                for field, name, inlined in zip(item.fields, names, spliced, strict=True)
            ]
        )
        return TupleNode(item, path, names, nodes, spliced, prod([node.count for node in nodes]))

    def _variant(self, item: Variant, path: Path) -> VariantNode:
        form = self._forms.get(id(item))
        if form is None:
            form = self._forms[id(item)] = _VariantForm.of(item)
        if form.style == "option":
            nodes = tuple([self._node(case.type, path, 0, True) for case in item.cases])
        else:
            named = zip(form.names, item.cases, strict=True)
            nodes = tuple([self.build(case.type, (*path, name), 0, optional=True) for name, case in named])
        starts, count = form.starts, len(form.starts)
        if not starts:
            counts = [node.count for node in nodes]
            starts, count = tuple(accumulate(counts[:-1], initial=0)), sum(counts)
        return VariantNode(item, path, form.names, nodes, form.absent, form.style, starts, count)
