"""The tables of a store: subscriptions, topics, lives, and waiting for room."""

from __future__ import annotations

import pytest

from tests.persistence.store_machine import HISTORY, Machine, waits
from tidemark.broker.effects import (
    CommitTables,
    DropSubscription,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    TablesCommitted,
)
from tidemark.broker.hosting.subscription import SavedSubscription
from tidemark.errors import DiskFailedError
from tidemark.persistence import table_store
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Topic


def saved(machine: Machine) -> dict[str, SavedSubscription]:
    return {each.name: each for each in machine.recovered.subscriptions}


def test_subscriptions_come_back_with_their_selectors_and_acknowledgements() -> None:
    machine = Machine()
    machine.do(SaveSubscription(3, "audit", HISTORY), SaveSubscription(4, "other", HISTORY[:1]))
    machine.do(SaveReleased(3, CheckpointToken({"p1": 7})))
    assert machine.do(CommitTables(1)) == [TablesCommitted(1)]
    machine.do(SaveReleased(3, CheckpointToken({"p1": 8})), DropSubscription(4))
    machine.crash()
    assert list(saved(machine)) == ["audit", "other"]
    assert saved(machine)["audit"].history == HISTORY
    assert dict(saved(machine)["audit"].released) == {"p1": 7}
    machine.do(SaveSubscription(3, "audit", HISTORY[1:]), DropSubscription(4), CommitTables(2))
    machine.crash()
    assert list(saved(machine)) == ["audit"]
    assert saved(machine)["audit"].history == HISTORY[1:]
    assert dict(saved(machine)["audit"].released) == {"p1": 7}


def test_a_subscriber_that_was_dropped_keeps_its_number_from_others() -> None:
    machine = Machine()
    assert machine.recovered.next_subscriber == 1
    machine.do(SaveSubscription(3, "audit", HISTORY), CommitTables(1), DropSubscription(3), CommitTables(2))
    machine.crash()
    assert machine.recovered.next_subscriber == 4


def test_topics_come_back_with_all_their_schemas() -> None:
    machine = Machine()
    machine.do(SaveTopic("t.x", False, ("[a: int]",)), SaveTopic("t.y", True, ()), CommitTables(1))
    machine.do(SaveTopic("t.x", False, ("[a: int, b: int]",)), CommitTables(2))
    machine.crash()
    assert list(machine.recovered.topics) == [
        Topic("t.x", False, ("[a: int]", "[a: int, b: int]")),
        Topic("t.y", True, ()),
    ]


def test_every_life_has_a_higher_number_whatever_was_committed() -> None:
    machine = Machine()
    assert machine.store.incarnation == 1
    machine.crash()
    assert machine.store.incarnation == 2
    machine.crash()
    assert machine.store.incarnation == 3


def test_tables_wait_for_room() -> None:
    machine = Machine()
    machine.fill()
    assert machine.do(SaveTopic("t", True, ()), CommitTables(4)) == []
    assert waits(machine)
    machine.do(SaveTopic("u", True, ()))
    machine.free()
    assert machine.store.retry() == [TablesCommitted(4)]
    machine.crash()
    assert [each.topic for each in machine.recovered.topics] == ["t", "u"]


def test_tables_that_wait_too_long_stop_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_store, "UNCOMMITTED_ROWS_MAX", 5)
    machine = Machine()
    machine.fill()
    machine.do(SaveTopic("t", True, ()), CommitTables(1))
    more = [SaveTopic(f"t{number}", True, ()) for number in range(10)]
    with pytest.raises(DiskFailedError, match="make room and restart"):
        machine.do(*more)
