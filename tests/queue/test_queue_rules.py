"""The rules of a queue, one a test, against a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tidemark
import tidemark.queue
from tests.live_node import live_node
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import (
    ClientError,
    ClosedError,
    DirectoryLockedError,
    EmptyError,
    EncodeError,
    NotConnectedError,
    NotSubscribedError,
    RefusedError,
    UnknownFormatError,
)
from tidemark.queue import Queue
from tidemark.queue.reader import InHand

Open = Callable[[str], Queue]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with live_node(tmp_path_factory.mktemp("broker")) as node:
        yield node.url


@pytest.fixture
def open_queue(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open a queue; its name is this test's own at the broker."""
    with ExitStack() as stack:

        def opened(name: str) -> Queue:
            whole = f"{name} of {request.node.name}"
            queue = tidemark.queue.connect(
                url, name=whole, state=tmp_path / f"{name}.db", timeout=PATIENCE_SECONDS
            )
            stack.callback(queue.close)
            return queue

        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "")


def test_what_is_put_is_got_in_order(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    for n in range(20):
        queue.put(topic, {"n": n})
    assert [queue.get(topic, PATIENCE_SECONDS) for _ in range(20)] == [{"n": n} for n in range(20)]
    assert queue.puts == 20
    assert queue.waiting == 0


@pytest.mark.parametrize(
    "message",
    [b"", b"\x00\xff", "", "über", {}, {"a": 1, "b": {"c": [1.5, 2.5], "d": None}, "e": b"x"},
     {"at": datetime(2026, 11, 16, tzinfo=UTC)}, {"_text": "a", "_bytes": b"b"}, {"_text": 1}],
    ids=repr,
)  # fmt: skip
def test_a_message_comes_back_as_it_was_put(url: str, tmp_path: Path, message: Any) -> None:
    with tidemark.queue.connect(url, name="shapes", state=tmp_path / "shapes.db") as queue:
        queue.subscribe("shapes")
        if message == {"_text": 1}:
            with pytest.raises(EncodeError):
                queue.put("shapes", message)
            return
        queue.put("shapes", message)
        got = queue.get("shapes", timeout=0)
        assert got == message
        assert type(got) is type(message)


def test_every_subscriber_gets_every_message(open_queue: Open, topic: str) -> None:
    one, two, publisher = open_queue("one"), open_queue("two"), open_queue("publisher")
    one.subscribe(topic)
    two.subscribe(topic)
    publisher.put(topic, "hello")
    assert one.get(topic, PATIENCE_SECONDS) == two.get(topic, PATIENCE_SECONDS) == "hello"


def test_a_second_subscribe_keeps_the_position(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    for text in ("a", "b", "c"):
        queue.put(topic, text)
    assert queue.get(topic, PATIENCE_SECONDS) == "a"
    queue.subscribe(topic)
    assert queue.get(topic, PATIENCE_SECONDS) == "b"
    queue.close()
    again = open_queue("me")
    again.subscribe(topic)
    assert again.get(topic, PATIENCE_SECONDS) == "b"
    assert again.get(topic, PATIENCE_SECONDS) == "c"


def test_a_topic_without_subscribers_keeps_nothing(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.put(topic, "nobody hears this")
    queue.subscribe(topic)
    with pytest.raises(EmptyError):
        queue.get(topic, timeout=0)
    queue.put(topic, "but this")
    assert queue.get(topic, PATIENCE_SECONDS) == "but this"


def test_after_unsubscribe_nothing_is_kept(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    queue.put(topic, "not consumed")
    queue.unsubscribe(topic)
    queue.put(topic, "not subscribed")
    assert queue.topics == []
    queue.subscribe(topic)
    with pytest.raises(EmptyError):
        queue.get(topic, timeout=0)
    assert queue.topics == [topic]


def test_get_of_a_topic_that_is_not_subscribed_is_an_error(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    for call in (queue.get, queue.done, queue.unsubscribe):
        with pytest.raises(NotSubscribedError) as caught:
            call(topic)
        assert caught.value.topic == topic
    with pytest.raises(NotSubscribedError), queue.take(topic):
        pass
    queue.subscribe(topic)
    queue.unsubscribe(topic)
    with pytest.raises(NotSubscribedError):
        queue.get(topic)


def test_get_waits_until_a_message_comes(open_queue: Open, topic: str) -> None:
    subscriber, publisher = open_queue("subscriber"), open_queue("publisher")
    subscriber.subscribe(topic)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(subscriber.get(topic)))
    waiting.start()
    while not subscriber._readers[topic].lock.locked():
        time.sleep(0.001)
    with pytest.raises(ClientError, match="one at a time"):
        subscriber.get(topic, timeout=0)
    publisher.put(topic, b"at last")
    waiting.join(PATIENCE_SECONDS)
    assert got == [b"at last"]


def test_get_says_empty_only_if_nothing_was_put_before(open_queue: Open, topic: str) -> None:
    """Each put has returned before the get begins, so none may be missed, however fast the get is."""
    publisher = open_queue("publisher")
    for n in range(5):
        subscriber = open_queue("subscriber")
        subscriber.subscribe(topic)
        publisher.put(topic, {f"shape {n}": n})
        assert subscriber.get(topic, timeout=0) == {f"shape {n}": n}
        with pytest.raises(EmptyError) as caught:
            subscriber.get(topic, timeout=0)
        assert caught.value.topic == topic
        subscriber.close()


def test_a_message_is_consumed_by_the_next_get_done_or_a_good_end(open_queue: Open, topic: str) -> None:
    publisher = open_queue("publisher")
    queue = open_queue("me")
    queue.subscribe(topic)
    for text in "abcd":
        publisher.put(topic, text)
    assert queue.get(topic, PATIENCE_SECONDS) == "a"
    queue.close()
    queue = open_queue("me")
    assert queue.get(topic, PATIENCE_SECONDS) == "a"
    queue.done(topic)
    queue.close()
    with open_queue("me") as queue:
        assert queue.get(topic, PATIENCE_SECONDS) == "b"
    queue = open_queue("me")
    assert queue.get(topic, PATIENCE_SECONDS) == "c"
    assert queue.get(topic, PATIENCE_SECONDS) == "d"
    with pytest.raises(ZeroDivisionError), queue:
        raise ZeroDivisionError
    assert open_queue("me").get(topic, PATIENCE_SECONDS) == "d"


def test_a_block_that_fails_gives_its_message_back_and_undoes_the_rest(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    queue.subscribe(f"{topic}.made")
    queue.put(topic, "a")
    queue.put(topic, "b")

    def fail() -> None:
        with queue.take(topic, PATIENCE_SECONDS) as message:
            queue.database.execute("CREATE TABLE mine (message TEXT)")
            queue.put(f"{topic}.made", message)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for expected in ("a", "b"):
        with queue.take(topic, PATIENCE_SECONDS) as message:
            assert message == expected
            queue.database.execute("CREATE TABLE IF NOT EXISTS mine (message TEXT)")
            queue.database.execute("INSERT INTO mine VALUES (?)", (message,))
            queue.put(f"{topic}.made", message)
    queue.flush()
    assert [queue.get(f"{topic}.made", PATIENCE_SECONDS) for _ in "ab"] == ["a", "b"]
    with pytest.raises(EmptyError):
        queue.get(f"{topic}.made", timeout=0)
    assert queue.puts == 4
    queue.put(topic, "c")
    with queue.take(topic, PATIENCE_SECONDS) as message:
        assert queue.database.execute("SELECT message FROM mine").fetchall() == [("a",), ("b",)]


def test_a_block_is_one_transaction_and_nothing_else(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    queue.put(topic, "a")
    with pytest.raises(ClientError, match="in a block"):
        _ = queue.database
    with queue.take(topic, PATIENCE_SECONDS):
        calls = (queue.get, queue.done, queue.subscribe, queue.unsubscribe)
        for call in calls:
            with pytest.raises(ClientError, match="end it before"):
                call(topic)
    queue.put(topic, "b")
    with pytest.raises(ClientError, match="leave that to its end"), queue.take(topic, PATIENCE_SECONDS):
        queue.database.commit()
    assert queue.get(topic, PATIENCE_SECONDS) == "b"


def test_a_message_with_an_id_is_put_once(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    for _ in range(3):
        queue.put(topic, "order 17", message_id="17")
    queue.close()
    queue = open_queue("me")
    queue.put(topic, "order 17", message_id="17")
    queue.put(topic, "order 18", message_id="18")
    assert [queue.get(topic, PATIENCE_SECONDS) for _ in range(2)] == ["order 17", "order 18"]
    with pytest.raises(EmptyError):
        queue.get(topic, timeout=0)


def test_ids_are_remembered_up_to_a_limit(
    open_queue: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.queue.state.IDS_MAX", 2)
    queue = open_queue("me")
    for n in (1, 2, 3, 3, 2, 1):
        queue.put(topic, "x", message_id=str(n))
    assert queue.puts == 4


def test_many_threads_may_put(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)

    def put(thread: int) -> None:
        for n in range(10):
            queue.put(topic, {"thread": thread, "n": n})

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    got: list[Any] = [queue.get(topic, PATIENCE_SECONDS) for _ in range(40)]
    for number in range(4):
        assert [each["n"] for each in got if each["thread"] == number] == list(range(10))


def test_other_clients_see_the_fields_of_a_message(open_queue: Open, url: str, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    with tidemark.sync.connect(url) as tm, tm.subscribe(topic, where="price > 10") as sub:
        queue.put(topic, {"price": 5})
        queue.put(topic, {"price": 15})
        event = sub.next(PATIENCE_SECONDS)
        assert isinstance(event, tidemark.Event)
        assert event["price"] == 15
        tm.publish(topic, {"price": 25})
    assert [queue.get(topic, PATIENCE_SECONDS) for _ in range(3)] == [{"price": p} for p in (5, 15, 25)]


def test_a_declared_topic_takes_what_fits_it(open_queue: Open, url: str, topic: str) -> None:
    with tidemark.sync.connect(url) as tm:
        tm.create_topic(topic, "[n: int]")
    queue = open_queue("me")
    queue.subscribe(topic)
    with pytest.raises(EncodeError):
        queue.put(topic, "a text")
    queue.put(topic, {"n": 1})
    assert queue.get(topic, PATIENCE_SECONDS) == {"n": 1}
    assert queue.puts == 1


def test_a_subscription_that_an_administrator_has_ended_goes_on_from_where_it_was(
    open_queue: Open, url: str, topic: str
) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    queue.put(topic, "old")
    name = f"{queue.name}:{topic}"
    queue.close()
    with tidemark.sync.connect(url) as tm:
        tm.ask("remove", name=name)
    queue = open_queue("me")
    queue.put(topic, "new")
    got = list[object]()
    while "new" not in got:
        try:
            got.append(queue.get(topic, PATIENCE_SECONDS))
        except RefusedError:
            got.append("let go")  # while nobody held it, which may have been long enough
    assert got in (["old", "new"], ["let go", "new"])


def test_what_brokers_were_told_to_let_go_is_said_and_then_passed(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    queue.put(topic, "still there")
    reader = queue._reader(topic)
    token = reader.subscription.checkpoint
    gap = tidemark.Gap("main", 1, 2, "released", token)
    reader.hand = InHand(reader._message(gap), token)
    reader.is_returned = True
    with pytest.raises(RefusedError, match="is gone") as caught:
        queue.get(topic, PATIENCE_SECONDS)
    assert (caught.value.what, caught.value.name) == ("get", topic)
    assert queue.get(topic, PATIENCE_SECONDS) == "still there"


@pytest.mark.parametrize("topic", ["two..dots", "with space", "wild.*", "rest.>"])
def test_a_malformed_topic_is_refused_and_leaves_nothing(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    with pytest.raises(RefusedError):
        queue.subscribe(topic)
    with pytest.raises(RefusedError):
        queue.put(topic, "x")
    assert queue.topics == []
    assert queue.puts == 0


def test_what_is_no_message_is_refused_and_leaves_nothing(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    for message in (17, None, {"x": object()}, b"x" * (2 << 20)):
        with pytest.raises(EncodeError):
            queue.put(topic, message)  # type: ignore[arg-type]  # that is the point
    assert queue.puts == 0


def test_a_state_file_is_used_by_one_at_a_time(open_queue: Open, url: str, tmp_path: Path) -> None:
    queue = open_queue("me")
    with pytest.raises(DirectoryLockedError):
        open_queue("me")
    queue.close()
    open_queue("me").close()
    with pytest.raises(ClientError, match="not of 'you'"):
        tidemark.queue.connect(url, name="you", state=tmp_path / "me.db")
    (tmp_path / "thesis.tex").write_text("x" * 5_000)
    with pytest.raises(UnknownFormatError):
        tidemark.queue.connect(url, name="me", state=tmp_path / "thesis.tex")
    with pytest.raises(ClientError, match="colon"):
        tidemark.queue.connect(url, name="a:b", state=tmp_path / "x.db")


def test_closing_ends_all_waiting(open_queue: Open, topic: str) -> None:
    queue = open_queue("me")
    queue.subscribe(topic)
    caught: list[BaseException] = []

    def get() -> None:
        try:
            queue.get(topic)
        except BaseException as error:
            caught.append(error)

    waiting = threading.Thread(target=get)
    waiting.start()
    time.sleep(0.05)
    queue.close()
    waiting.join(PATIENCE_SECONDS)
    assert [type(each) for each in caught] == [ClosedError]
    with pytest.raises(ClosedError):
        queue.put(topic, "x")
    with pytest.raises(ClosedError):
        queue.get(topic)


def test_without_a_broker_connect_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotConnectedError):
        tidemark.queue.connect(
            "tidemark://127.0.0.1:1", name="me", state=tmp_path / "me.db", connect_timeout=0.1
        )
