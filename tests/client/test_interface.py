"""The interface that autocomplete shows, pinned; and the blocking classes keep step with the asyncio ones."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union

import pytest

import tidemark
from tests.client.connected import connected, declare, publish
from tests.client.fake_broker import FakeBroker
from tests.waiting import PATIENCE_SECONDS
from tidemark import queue, sync

CLIENT = {
    "ask", "broker", "close", "create_topic", "is_connected", "name", "publish", "publish_batch",
    "move_publisher", "publish_many", "remove_topic", "schemas", "subscribe", "transaction", "unsubscribe",
}  # fmt: skip
SUBSCRIPTION = {"ack", "batches", "checkpoint", "close", "name", "next", "unsubscribe"}

INTERFACE: dict[type, set[str]] = {
    tidemark.Client: CLIENT | {"open"},
    tidemark.Subscription: SUBSCRIPTION | {"open"},
    tidemark.Transaction: {"ack"},
    tidemark.Event: {
        "checkpoint", "get", "items", "key", "keys", "priority", "pubend", "publisher", "tick", "time",
        "topic", "traceparent", "value", "values",
    },
    tidemark.Batch: {"base", "checkpoint", "column", "pubend", "ticks", "to_arrow", "upto"},
    tidemark.Gap: {"base", "checkpoint", "pubend", "reason", "upto"},
    tidemark.SqliteCheckpoints: {"create", "load", "save"},
    tidemark.DbApiCheckpoints: {"create", "load", "save"},
    sync.Client: CLIENT | {"publish_batches"},
    sync.Subscription: SUBSCRIPTION,
    sync.Transaction: {"ack"},
    queue.Queue: {
        "close", "database", "done", "flush", "get", "name", "put", "puts", "subscribe", "take", "topics",
        "unsubscribe", "waiting",
    },
}  # fmt: skip

TWINS = [
    (tidemark.Client, sync.Client),
    (tidemark.Subscription, sync.Subscription),
    (tidemark.Transaction, sync.Transaction),
]
#: Blocking iteration has no other way to end after a while.
ONLY_SYNC: dict[tuple[type, str], set[str]] = {(sync.Subscription, "batches"): {"timeout"}}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("kind", INTERFACE, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_a_class_shows_its_interface_and_nothing_else(kind: type) -> None:
    assert public(kind) == INTERFACE[kind]


@connected
async def test_objects_of_the_client_show_no_more_than_their_classes(tm: tidemark.Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d") as sub:
        await publish(tm, 0, 4)
        event = await sub.next(PATIENCE_SECONDS)
        batch = await anext(sub.batches())
        for made in (tm, sub, tm.transaction(), event, batch):
            assert public(made) == INTERFACE[type(made)]


def test_objects_of_the_blocking_client_show_no_more_than_their_classes(broker: FakeBroker) -> None:
    with sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t") as sub, tm.transaction() as transaction:
            for made in (tm, sub, transaction):
                assert public(made) == INTERFACE[type(made)]


def test_a_queue_shows_no_more_than_its_class(broker: FakeBroker, tmp_path: Path) -> None:
    with queue.connect(broker.url, name="q", state=tmp_path / "q.db") as made:
        # The database is there in a block of take() only.
        assert {name for name in vars(made) if not name.startswith("_")} <= INTERFACE[queue.Queue]


def blocking(hint: Any) -> Any:
    """The type that a blocking method returns where the asyncio one returns `hint`."""
    origin = typing.get_origin(hint)
    if origin is asyncio.Future:
        return typing.get_args(hint)[0]
    if origin is AsyncIterator:
        return Iterator[typing.get_args(hint)]  # type: ignore[misc]
    if origin is Union or isinstance(hint, UnionType):
        return Union[tuple(blocking(each) for each in typing.get_args(hint))]  # noqa: UP007
    if origin in dict(TWINS):
        return dict(TWINS)[origin][typing.get_args(hint)]  # type: ignore[index]
    return dict(TWINS).get(hint, hint)


@pytest.mark.parametrize(
    ("kind", "twin", "name"),
    [
        (kind, twin, name)
        for kind, twin in TWINS
        for name in sorted(INTERFACE[twin] & INTERFACE[kind])
        if inspect.isfunction(getattr(kind, name))
    ],
)
def test_a_blocking_method_takes_and_gives_what_the_asyncio_one_does(
    kind: type, twin: type, name: str
) -> None:
    extra = ONLY_SYNC.get((twin, name), set())
    theirs, ours = getattr(kind, name), getattr(twin, name)
    wanted = inspect.signature(theirs).parameters
    found = {key: each for key, each in inspect.signature(ours).parameters.items() if key not in extra}
    assert [(each.name, each.kind, each.default) for each in found.values()] == [
        (each.name, each.kind, each.default) for each in wanted.values()
    ]
    hints, twin_hints = typing.get_type_hints(theirs), typing.get_type_hints(ours)
    for key in (*wanted.keys() - {"self"}, "return"):
        assert twin_hints[key] == blocking(hints[key]), key


@pytest.mark.parametrize("name", ["connect", "listen"])
def test_connecting_takes_the_same_options_with_and_without_asyncio(name: str) -> None:
    wanted, found = inspect.signature(getattr(tidemark, name)), inspect.signature(getattr(sync, name))
    assert str(found) == str(wanted)


@pytest.mark.parametrize("twin", [sync.Client, sync.Subscription, sync.Transaction])
def test_every_blocking_attribute_has_an_asyncio_one(twin: type) -> None:
    kind = {second: first for first, second in TWINS}[twin]
    assert INTERFACE[twin] - INTERFACE[kind] <= {"publish_batches"}
    assert INTERFACE[kind] - INTERFACE[twin] <= {"open"}
