"""The keys of a tuple's dict and the nodes that hold them, as `message.members` has them for types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.message.codec.flat import Box, Leaf, LeafNode, Node, TupleNode, VariantNode


@dataclass(frozen=True, slots=True)
class NodeMember:
    """A key of a tuple's dict, and the node that holds its value."""

    name: str
    node: Node
    #: The key is a case of a spliced variant: the dict has it only when the case is chosen.
    chosen: bool = False
    #: The leaf that boxes the spliced variant, when the tuple lies in a list; else None.
    box: Leaf | None = None


def node_members(node: TupleNode) -> Iterator[NodeMember]:
    """Every key that the tuple's dict can have, spliced ones included, in the order of `members.members`."""
    for name, child, spliced in zip(node.names, node.nodes, node.spliced, strict=True):
        if not spliced:
            yield NodeMember(name, child)
        elif isinstance(child, TupleNode):
            yield from node_members(child)
        elif isinstance(child, VariantNode):
            yield from case_members(child)
        else:
            assert isinstance(child, LeafNode)
            assert isinstance(child.leaf.basic, Box)
            inner = child.leaf.basic.flat.root
            assert isinstance(inner, VariantNode)
            yield from case_members(inner, child.leaf)


def case_members(node: VariantNode, box: Leaf | None = None) -> Iterator[NodeMember]:
    """A member for each case of a variant but the absent one."""
    for at, (name, case) in enumerate(zip(node.names, node.nodes, strict=True)):
        if at != node.absent:
            yield NodeMember(name, case, chosen=True, box=box)
