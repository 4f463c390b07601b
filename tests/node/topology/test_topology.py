"""Topologies: cells, bundles and trees in a file, what is refused, and the way from one to another."""

from __future__ import annotations

import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.broker.overlay.layout import Layout
from tidemark.errors import ConfigError
from tidemark.node.config.loading import load, processes_of, topology_of
from tidemark.node.config.units import HostPort
from tidemark.node.topology import checks, file
from tidemark.node.topology.file import parse_topology, take_topology
from tidemark.node.topology.plan import Change, changes, joined, steps
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import BrokerPlacement, Bundle, Topology

TWO_EACH = """
[brokers.e1]
cell = "east"
listen = "127.0.0.1:7001"
pubends = ["orders", "trades"]
[brokers.e2]
cell = "east"
listen = "127.0.0.1:7002"
[brokers.m1]
cell = "middle"
listen = "127.0.0.1:7003"
[brokers.m2]
cell = "middle"
listen = "127.0.0.1:7004"
[brokers.w1]
cell = "west"
listen = "127.0.0.1:7005"
[brokers.w2]
cell = "west"
listen = "127.0.0.1:7006"
[bundles.em]
cells = ["east", "middle"]
[bundles.mw]
cells = ["middle", "west"]
links = [["m1", "w1"], ["w2", "m2"]]
"""
RING = TWO_EACH + '[bundles.we]\ncells = ["west", "east"]\n'
TREES = RING + '[trees.over]\nbundles = ["em", "we"]\npubends = ["trades"]\n'


def read(text: str) -> Topology:
    found = take_topology(tomllib.loads(text), "overlay.toml")
    assert found is not None
    return found


def test_cells_bundles_and_the_tree_that_is_found_make_a_layout() -> None:
    layout = read(TWO_EACH).layout()
    links = {("e1", "m1"), ("e1", "m2"), ("e2", "m1"), ("e2", "m2"), ("m1", "w1"), ("m2", "w2")}
    assert layout == Layout(
        {"east": ("e1", "e2"), "middle": ("m1", "m2"), "west": ("w1", "w2")},
        frozenset(links),
        {"orders": "e1", "trades": "e1"},
        {"main": frozenset({("east", "middle"), ("middle", "west")})},
    )


def test_a_pubend_uses_the_tree_that_names_it_and_others_the_first_that_spans() -> None:
    layout = read(TREES).layout()
    assert layout.edges("trades") == {("east", "middle"), ("east", "west")}
    assert layout.edges("orders") == {("east", "middle"), ("middle", "west")}


def test_the_first_of_a_link_calls_the_second_and_in_a_cell_the_later_name() -> None:
    topology = read(TWO_EACH)
    assert set(topology.calls("e2")) == {"e1", "m1", "m2"}
    assert set(topology.calls("m2")) == {"m1"}
    assert set(topology.calls("w2")) == {"m2", "w1"}
    for a, b in topology.layout().all_links():
        assert (b in topology.calls(a)) != (a in topology.calls(b))


def test_drained_brokers_and_shared_processes_are_said_in_the_file(tmp_path: Path) -> None:
    text = TWO_EACH.replace('"127.0.0.1:7002"', '"127.0.0.1:7002"\ndraining = true')
    file = tmp_path / "overlay.toml"
    file.write_text(text + '[processes.left]\nbrokers = ["e1", "m1"]\n')
    assert topology_of(file).layout().draining == {"e2"}
    left, *others = processes_of(file).values()
    assert left == ("e1", "m1")
    assert others == [("e2",), ("m2",), ("w1",), ("w2",)]
    assert load(file, broker="m1").storage.data_dir == str(tmp_path / "tidemark-data-m1")


@pytest.mark.parametrize(
    ("change", "key", "complaint"),
    [
        (
            ('cells = ["middle", "west"]', 'cells = ["middle", "north"]'),
            "bundles.mw.cells",
            "no cell 'north'",
        ),
        (('cells = ["middle", "west"]', 'cells = ["west", "west"]'), "bundles.mw.cells", "joins two cells"),
        (('cells = ["middle", "west"]', 'cells = ["west"]'), "bundles.mw.cells", "the two cells"),
        (
            ('cells = ["middle", "west"]', 'cells = ["middle", "east"]'),
            "bundles.mw.links",
            "is no link between",
        ),
        (('["m1", "w1"]', '["w2", "w1"]'), "bundles.mw.links", "both in the cell 'west'"),
        (('["m1", "w1"]', '["m1", "w3"]'), "bundles.mw.links", "no broker 'w3'"),
        (('["m1", "w1"]', '["m2", "w2"]'), "bundles.mw.links", "is there twice"),
        (('["m1", "w1"]', '"m1-w1"'), "bundles.mw.links", "no list of links"),
        (("[bundles.mw]", "[bundles.mw]\nwidth = 3"), "bundles.mw.width", "is not known"),
        (("7006", "7005"), "brokers.w2.listen", "where 'w1' listens already"),
        (('cell = "west"', 'cell = "west"\npubends = ["trades"]'), "brokers.w1.pubends", "hosted by 'e1'"),
        (('cell = "west"', 'cell = "west"\nparent = "m1"'), "brokers.w1.parent", "leave `parent` out"),
        (('cell = "west"', 'cell = "west"\ndraining = 1'), "brokers.w1.draining", "neither true nor false"),
        (('["em", "we"]', '["em", "we", "mw"]'), "trees.over.bundles", "in a circle with mw"),
        (('["em", "we"]', '["em"]'), "trees.over.bundles", "does not reach the cell 'west'"),
        (('["em", "we"]', '["em", "xx"]'), "trees.over.bundles", "no bundle 'xx'"),
        (('pubends = ["trades"]', 'pubends = ["bonds"]'), "trees.over.pubends", "no pubend 'bonds'"),
        (('pubends = ["trades"]', ""), "trees.over", "say which pubends"),
        (("[trees.over]", '[processes.p]\nbrokers = ["e9"]\n[trees.over]'), "processes.p.brokers", "'e9'"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_its_key(
    change: tuple[str, str], key: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        read(TREES.replace(*change, 1))
    assert caught.value.key == key
    assert caught.value.source == "overlay.toml"


def test_a_cell_that_no_bundle_leads_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be reached from 'east'") as caught:
        read(TWO_EACH.replace('[bundles.em]\ncells = ["east", "middle"]', ""))
    assert caught.value.key == "brokers.m1.cell"


def test_two_bundles_between_the_same_cells_are_one() -> None:
    with pytest.raises(ConfigError, match="put all links into one"):
        read(TWO_EACH + '[bundles.again]\ncells = ["middle", "east"]\n')


#: Names are stripped of blanks when they are read, so they neither begin nor end with one.
names = st.text("abc -.é\"'\\", min_size=1, max_size=3).filter(lambda name: name.strip() == name != ".")


@given(st.lists(names, min_size=2, max_size=5, unique=True), st.integers(0, 1 << 40))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_what_is_written_reads_in_again_as_the_same(cells: list[str], version: int) -> None:
    placements = [
        BrokerPlacement(f"b{at}{cell}", cell, HostPort("h", at), (cell,)) for at, cell in enumerate(cells)
    ]
    bundles = [Bundle(f"{a}-{b}", (a, b)) for a, b in pairwise(cells)]
    topology = Topology.build(placements, bundles, version=version)
    again = parse_topology(to_text(topology), version)
    assert again.layout() == topology.layout()
    assert (again.digest, again.version) == (topology.digest, version)
    assert not again.is_newer_than(topology)


# Changes.


def test_a_topology_that_differs_in_nothing_takes_no_steps() -> None:
    assert changes(read(TREES), read(TREES)) == []
    assert steps(read(TREES), read(TREES)) == []


def test_what_is_added_is_one_step() -> None:
    (step,) = steps(read(TWO_EACH), read(RING))
    assert (step.what, step.added, step.drained) == ("add", (), ())
    assert step.topology.layout() == read(RING).layout()
    assert step.topology.version == 1


def without(text: str, broker: str) -> str:
    head, _, rest = text.partition(f"[brokers.{broker}]")
    return head + rest[rest.index("[") :]


def test_a_broker_is_replaced_by_adding_draining_and_only_then_removing() -> None:
    after = without(RING, "m2").replace(
        "[brokers.m1]", '[brokers.m3]\ncell = "middle"\nlisten = "127.0.0.1:7010"\n[brokers.m1]'
    )
    after = after.replace('["w2", "m2"]', '["w2", "m3"]')
    before = read(RING)
    found = steps(before, read(after))
    assert [(step.what, step.added, step.drained) for step in found] == [
        ("add", ("m3",), ()),
        ("drain", (), ("m2",)),
        ("remove", (), ()),
    ]
    assert [step.topology.version for step in found] == [1, 2, 3]
    add, drain, remove = (step.topology.layout() for step in found)
    assert set(before.layout().all_links()) < set(add.all_links())
    assert drain.draining == {"m2"}
    assert remove == read(after).layout()
    assert Change("broker", "m2", "removed", "drained first") in changes(before, read(after))


def test_a_cell_that_goes_stays_in_every_tree_until_it_is_drained() -> None:
    after = without(without(TREES, "m1"), "m2")
    for bundle in ("em", "mw"):
        head, _, rest = after.partition(f"[bundles.{bundle}]")
        after = head + rest[rest.index("\n[") + 1 :]
    after = after.replace('bundles = ["em", "we"]', 'bundles = ["we"]')
    add, _, remove = steps(read(TREES), read(after))
    assert {"middle", "west", "east"} == {
        cell for edge in add.topology.layout().edges("trades") for cell in edge
    }
    assert remove.topology.layout().edges("trades") == {("east", "west")}


def test_a_pubend_neither_moves_nor_goes_alone() -> None:
    moved = TWO_EACH.replace('pubends = ["orders", "trades"]', 'pubends = ["orders"]')
    with pytest.raises(ConfigError, match="goes with its broker only"):
        steps(read(TWO_EACH), read(moved))
    moved = moved.replace('"127.0.0.1:7002"', '"127.0.0.1:7002"\npubends = ["trades"]')
    with pytest.raises(ConfigError, match="has its log at 'e1'"):
        steps(read(TWO_EACH), read(moved))


def test_a_broker_joins_a_cell_with_links_to_all_of_the_cells_around() -> None:
    before = read(TREES)
    after = joined(before, BrokerPlacement("w9", "west", HostPort("127.0.0.1", 7009)), "middle")
    assert after.version == 1
    assert set(after.layout().neighbours("w9")) == {"w1", "w2", "m1", "m2", "e1", "e2"}
    assert joined(after, after.brokers["w9"], "middle").layout() == after.layout()
    with pytest.raises(ConfigError, match="there is a broker 'w9' already"):
        joined(after, BrokerPlacement("w9", "east", HostPort("127.0.0.1", 7009)), "middle")


def test_a_broker_joins_with_a_cell_of_its_own_that_every_tree_reaches() -> None:
    after = joined(read(TREES), BrokerPlacement("n1", "north", HostPort("127.0.0.1", 7009)), "east")
    assert set(after.layout().neighbours("n1")) == {"e1", "e2"}
    for pubend in ("orders", "trades"):
        assert after.layout().parent_cell(pubend, "north") == "east"


def lines_of_check(brokers: int) -> int:
    """How many lines of the checks run for a chain of brokers, each the parent of the one before it."""
    text = "".join(
        f'[brokers.b{at}]\nlisten = "h:{at + 1}"\n' + (f'parent = "b{at + 1}"\n' if at + 1 < brokers else "")
        for at in range(brokers)
    )
    lines = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename in (checks.__file__, file.__file__)
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        parse_topology(text, 1)
    finally:
        sys.settrace(before)
    return lines


def test_twice_as_many_brokers_in_a_chain_take_twice_the_work_to_check() -> None:
    assert lines_of_check(120) < 2.2 * lines_of_check(60)


def test_too_many_brokers_are_refused_before_their_parents_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_reached(*_: object) -> None:
        raise AssertionError("the parents were followed")

    monkeypatch.setattr("tidemark.node.topology.file._of_parents", not_reached)
    text = "".join(f"[brokers.b{at}]\n" for at in range(checks.BROKERS_MAX + 1))
    with pytest.raises(ConfigError, match="over the limit"):
        parse_topology(text, 1)
