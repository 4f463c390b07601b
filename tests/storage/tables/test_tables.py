"""The tables' contract, on SQLite and in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.tables.kinds import InMemory, OnDisk, reselected, seen, subscribe
from tidemark.errors import (
    DiskFullError,
)
from tidemark.message.topic_selector import TopicSelector
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.storage.tables.tables import ACCEPTED, INCARNATION, SUBSCRIBERS, Tables, TopicRow
from tidemark.storage.witness.known import Known
from tidemark.ticks import TICK_FIRST, TICK_LAST, CheckpointToken


def test_what_was_committed_survives_a_crash(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.release(row.id, {"p1": 105, "p2": TICK_LAST})
    tables.deliver("p1", 107)
    tables.bump(INCARNATION)
    tables.commit()
    tables = host.crash()
    assert tables.subscriptions() == [row]
    assert tables.subscription("audit") == row
    assert tables.released(row.id) == CheckpointToken({"p1": 105, "p2": TICK_LAST})
    assert tables.latest_delivered() == CheckpointToken({"p1": 107})
    assert tables.counter(INCARNATION) == 1


def test_what_was_not_committed_is_seen_at_once_and_lost_in_a_crash(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    kept = subscribe(tables, "kept")
    tables.deliver("p1", 1)
    tables.commit()
    subscribe(tables, "lost")
    tables.deliver("p1", 2)
    tables.release(kept.id, {"p1": 5})
    assert [row.name for row in tables.subscriptions()] == ["kept", "lost"]
    assert tables.latest_delivered() == CheckpointToken({"p1": 2})
    tables = host.crash()
    assert tables.subscriptions() == [kept]
    assert tables.latest_delivered() == CheckpointToken({"p1": 1})
    assert tables.released(kept.id) == CheckpointToken()


def test_positions_never_go_back(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    for tick in (7, 9, 8):
        tables.release(row.id, {"p1": tick})
        tables.deliver("p1", tick)
        tables.commit()
    tables = host.crash()
    assert tables.released(row.id) == tables.latest_delivered()
    assert tables.latest_delivered() == CheckpointToken({"p1": 9})


def test_a_number_is_never_given_to_a_second_subscriber(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    first = subscribe(tables)
    tables.remove_subscription(first.id)
    tables.commit()
    tables = host.crash()
    second = subscribe(tables)
    assert second.id != first.id


def test_a_removed_subscriber_takes_its_positions_along(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    gone, stays = subscribe(tables, "gone"), subscribe(tables, "stays")
    for row in (gone, stays):
        tables.release(row.id, {"p1": 5})
    tables.commit()
    tables.remove_subscription(gone.id)
    tables.remove_subscription(gone.id)
    tables.release(gone.id, {"p1": 6})
    tables.commit()
    for each in (tables, host.crash()):
        assert each.subscriptions() == [stays]
        assert each.subscription("gone") is None
        assert each.released(gone.id) == CheckpointToken()
        assert each.released(stays.id) == CheckpointToken({"p1": 5})


def test_a_subscription_made_and_removed_between_commits_leaves_nothing(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.release(row.id, {"p1": 5})
    tables.remove_subscription(row.id)
    tables.commit()
    assert host.crash().subscriptions() == []


def test_a_changed_selector_keeps_what_held_before(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.commit()
    wanted = TopicSelector("trades.*", "price > 20")
    changed = reselected(row, wanted, CheckpointToken({"p1": 200}), epoch=3)
    tables.put_subscription(changed)
    tables.commit()
    tables = host.crash()
    assert tables.subscriptions() == [changed]


def test_counters_count_from_one_each_by_itself(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    assert [tables.bump("filter p1"), tables.bump("filter p1"), tables.bump("filter p2")] == [1, 2, 1]
    assert tables.counter("never used") == 0


def test_odd_names_and_extreme_ticks_survive(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables, "Zoë; DROP TABLE tokens --'\"")
    tables.release(row.id, {"日本\n": TICK_FIRST})
    tables.commit()
    tables = host.crash()
    assert tables.subscription(row.name) == row
    assert tables.released(row.id) == CheckpointToken({"日本\n": TICK_FIRST})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), st.sampled_from("abc")),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
        st.tuples(st.just("release"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("select"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("deliver"), st.sampled_from("pq"), st.integers(1, 9)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("crash")),
    ),
    max_size=30,
)


def apply(tables: Tables, step: tuple[Any, ...]) -> None:
    row = tables.subscription(step[1]) if len(step) > 1 else None
    match step:
        case ("subscribe", str(name)) if row is None:
            subscribe(tables, name)
        case ("remove", _) if row:
            tables.remove_subscription(row.id)
        case ("release", _, int(tick)) if row:
            tables.release(row.id, {"p1": tick})
        case ("select", _, int(tick)) if row:
            since = CheckpointToken({"p1": tick})
            tables.put_subscription(reselected(row, TopicSelector("a.b", f"x = {tick}"), since))
        case ("deliver", str(pubend), int(tick)):
            tables.deliver(pubend, tick)
        case ("commit",):
            tables.commit()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(steps=STEPS)
def test_both_kinds_show_the_same_after_every_step(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]]
) -> None:
    hosts = OnDisk(tmp_path_factory.mktemp("tables") / "tables.db"), InMemory()
    for step in steps:
        for each in hosts:
            if step == ("crash",):
                each.crash()
            else:
                apply(each.tables, step)
        assert seen(hosts[0].tables) == seen(hosts[1].tables)
    hosts[0].tables.close()


def test_hosts_are_kept_as_they_were_committed_last(host: OnDisk | InMemory) -> None:
    host.tables.put_hosts("p1", {"a": 3, "b": 1 << 40})
    host.tables.put_hosts("p2", {})
    host.tables.commit()
    host.tables.put_hosts("p1", {"a": 3})
    assert host.tables.hosts() == {"p1": {"a": 3}, "p2": {}}
    assert host.crash().hosts() == {"p1": {"a": 3, "b": 1 << 40}, "p2": {}}


def test_topics_survive_with_all_their_schemas(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.put_topic(TopicRow("t.y", True, ()))
    tables.put_topic(TopicRow("t.x", False, ("[a: int]",)))
    tables.commit()
    tables.put_topic(TopicRow("t.x", False, ('[a: int, "b: string]',)))
    tables.commit()
    tables.put_topic(TopicRow("t.z", True, ()))
    tables = host.crash()
    assert tables.topics() == [
        TopicRow("t.x", False, ("[a: int]", '[a: int, "b: string]')),
        TopicRow("t.y", True, ()),
    ]


def test_creations_of_a_topic_are_kept_apart_and_what_is_removed_stays_so(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.put_topic(TopicRow("t", True, ("[a: int]",)))
    tables.put_topic(TopicRow("t", True, (), 1))
    tables.put_topic(TopicRow("t", True, ("[late: int]",)))
    tables.commit()
    tables.put_topic(TopicRow("t", False, ("[a: string]",), 2))
    tables.put_topic(TopicRow("never.seen", False, ("[b: int]",), 2))
    tables.put_topic(TopicRow("never.seen", False, (), 3))
    tables.put_topic(TopicRow("not.known", False, (), 1))
    tables.commit()
    tables = host.crash()
    kept = [
        TopicRow("never.seen", False, ("[b: int]",), 3),
        TopicRow("not.known", False, (), 1),
        TopicRow("t", True, ("[a: int]", "[late: int]"), 1),
        TopicRow("t", False, ("[a: string]",), 2),
    ]
    assert tables.topics() == kept
    tables.put_topic(TopicRow("t", False, ("[a: string, c: int]",), 2))
    tables.commit()
    kept[-1] = TopicRow("t", False, ("[a: string]", "[a: string, c: int]"), 2)
    assert host.crash().topics() == kept


def test_a_history_that_became_shorter_leaves_nothing_behind(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    since = CheckpointToken({"p1": 200})
    row = reselected(subscribe(tables), TopicSelector("trades.>", "price > 20"), since)
    tables.put_subscription(row)
    tables.commit()
    short = replace(row, history=(replace(row.current, version=1),))
    tables.put_subscription(short)
    tables.commit()
    assert host.crash().subscriptions() == [short]


def test_a_number_given_out_elsewhere_is_not_given_out_again(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.use_subscriber(7)
    tables.use_subscriber(5)
    tables.commit()
    assert host.crash().bump(SUBSCRIBERS) == 8


def test_what_waits_for_a_commit_is_counted(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    assert tables.uncommitted == 0
    row = subscribe(tables)
    tables.release(row.id, {"p1": 3, "p2": 4})
    tables.put_topic(TopicRow("t", True, ()))
    assert tables.uncommitted == 4  # the counter of subscribers too
    tables.commit()
    tables.remove_subscription(row.id)
    assert tables.uncommitted == 1


def test_tables_in_memory_can_be_full() -> None:
    tables = MemoryTables()
    tables.is_full = True
    tables.deliver("p1", 5)
    with pytest.raises(DiskFullError):
        tables.commit()
    tables = tables.crash()
    assert tables.latest_delivered() == CheckpointToken()
    tables.is_full = False
    tables.deliver("p1", 6)
    tables.commit()
    assert tables.crash().latest_delivered() == CheckpointToken({"p1": 6})


def test_tables_that_lost_rows_give_no_number_out_again(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    known = Known(generation=40, incarnation=7, subscribers=90)
    tables.accept_loss(known)
    tables.commit()
    tables = host.crash()
    assert tables.generation == 41
    assert tables.bump(INCARNATION) > 7
    assert tables.bump(SUBSCRIBERS) > tables.counter(ACCEPTED) > 90
