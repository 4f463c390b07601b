"""Routing: one link of a bundle for each pubend, the same for all who agree, and another when it fails."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.waiting import PATIENCE_SECONDS
from tidemark.broker.overlay.layout import MAIN_TREE, Layout, pair
from tidemark.broker.overlay.routing import Routing
from tidemark.wire.rendezvous import weight

CELLS = {"root": ("r",), "mid": ("m1", "m2", "m3"), "leaf": ("l1", "l2")}
EDGES = frozenset({pair("root", "mid"), pair("mid", "leaf")})
LINKS = frozenset(pair(a, b) for x, y in EDGES for a in CELLS[x] for b in CELLS[y])
PUBENDS = {f"p{n}": "r" for n in range(64)}
LAYOUT = Layout(CELLS, LINKS, PUBENDS, {MAIN_TREE: EDGES})


def live(layout: Layout, down: frozenset[frozenset[str]] = frozenset()) -> dict[str, frozenset[str]]:
    return {
        name: frozenset(peer for peer in layout.neighbours(name) if frozenset((name, peer)) not in down)
        for name in layout.brokers
    }


def upstreams(
    layout: Layout, pubend: str, down: frozenset[frozenset[str]] = frozenset()
) -> dict[str, str | None]:
    seen = live(layout, down)
    return {name: Routing(layout, name).upstream(pubend, seen) for name in layout.brokers}


def path(ups: dict[str, str | None], start: str) -> list[str]:
    way = [start]
    while (up := ups[way[-1]]) is not None:
        assert up not in way, f"a circle: {way} and {up} again"
        way.append(up)
    return way


@pytest.mark.parametrize("pubend", ["p0", "p1", "p2", "p3"])
def test_a_pubend_crosses_a_bundle_on_one_link(pubend: str) -> None:
    ups = upstreams(LAYOUT, pubend)
    for above, below in (("root", "mid"), ("mid", "leaf")):
        crossing = [(ups[name], name) for name in CELLS[below] if ups[name] in CELLS[above]]
        assert len(crossing) == 1
    assert all(path(ups, name)[-1] == "r" for name in LAYOUT.brokers)


def test_pubends_spread_over_the_links_of_a_bundle() -> None:
    doors = Counter(
        (ups[name], name)
        for pubend in PUBENDS
        for ups in [upstreams(LAYOUT, pubend)]
        for name in CELLS["leaf"]
        if ups[name] in CELLS["mid"]
    )
    assert set(doors) == {(m, leaf) for m in CELLS["mid"] for leaf in CELLS["leaf"]}
    assert max(doors.values()) < 3 * len(PUBENDS) / len(doors)


def test_a_failed_link_moves_only_what_it_carried() -> None:
    down = frozenset({frozenset(("m1", "l1"))})
    for pubend in PUBENDS:
        before, after = upstreams(LAYOUT, pubend), upstreams(LAYOUT, pubend, down)
        if before["l1"] != "m1":
            assert before == after
        else:
            assert path(after, "l1")[-1] == "r"


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sets(st.sampled_from(LAYOUT.all_links()), max_size=8), st.sampled_from(sorted(PUBENDS)))
def test_there_are_no_circles_whatever_is_down(down: set[tuple[str, str]], pubend: str) -> None:
    ups = upstreams(LAYOUT, pubend, frozenset(map(frozenset, down)))
    for name in LAYOUT.brokers:
        path(ups, name)


def test_inside_its_own_cell_a_pubend_comes_from_its_host_or_around_a_link_that_is_down() -> None:
    layout = Layout(CELLS, LINKS, {"p": "m1"}, {MAIN_TREE: EDGES})
    assert upstreams(layout, "p")["m2"] == "m1"
    assert upstreams(layout, "p", frozenset({frozenset(("m1", "m2"))}))["m2"] == "m3"
    assert upstreams(layout, "p")["m1"] is None


def test_a_draining_broker_is_used_only_where_there_is_no_other() -> None:
    drained = replace(LAYOUT, draining=frozenset({"m1"}))
    for pubend in PUBENDS:
        assert "m1" not in upstreams(drained, pubend).values()
    alone = frozenset(frozenset((m, leaf)) for m in ("m2", "m3") for leaf in CELLS["leaf"])
    assert "m1" in upstreams(drained, "p0", alone).values()


def test_pubends_of_different_trees_take_different_bundles() -> None:
    cells = {name: (name,) for name in "abc"}
    trees = {MAIN_TREE: frozenset({("a", "b"), ("b", "c")}), "other": frozenset({("a", "c"), ("b", "c")})}
    links = frozenset({("a", "b"), ("b", "c"), ("a", "c")})
    layout = Layout(cells, links, {"p": "a", "q": "a"}, trees, {"q": "other"})
    assert upstreams(layout, "p") == {"a": None, "b": "a", "c": "b"}
    assert upstreams(layout, "q") == {"a": None, "b": "c", "c": "a"}


def test_a_cell_that_no_tree_reaches_has_no_way() -> None:
    layout = Layout({"a": ("a",), "b": ("b",)}, frozenset({("a", "b")}), {"p": "a"}, {MAIN_TREE: frozenset()})
    assert upstreams(layout, "p") == {"a": None, "b": None}


def test_the_hash_is_the_same_in_every_process() -> None:
    program = "from tidemark.wire.rendezvous import weight; print(weight('p', 'u', 'c'))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert int(run.stdout) == weight("p", "u", "c") == 2044322909954590767


def test_a_layout_without_a_broker_has_nothing_of_it() -> None:
    rest = LAYOUT.without("m1")
    assert "m1" not in rest.brokers
    assert not any("m1" in link for link in rest.links)
    assert LAYOUT.without("r").pubends == {}
    assert LAYOUT.without("r").cells.keys() == {"mid", "leaf"}
