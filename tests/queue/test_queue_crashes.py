"""Exactly once whoever dies: publisher, subscriber and broker are killed, at chosen points and at random."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemark.queue
from tests.queue import lives
from tests.queue.brokers import Broker
from tests.queue.lives import DIED, TOTAL, begin, live, opened
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import EmptyError, NotConnectedError, NotSubscribedError, TimedOutError


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")).running() as made:
        yield made


def rest(url: str, state: Path, topic: str) -> list[object]:
    """Returns all messages that are left in a topic."""
    found: list[object] = []
    until = time.monotonic() + PATIENCE_SECONDS
    with opened(url, state) as queue:
        while True:
            try:
                found.append(queue.get(topic, timeout=0))
            except EmptyError:
                return found
            except NotConnectedError:  # a broker that could not run for seconds was taken for dead
                assert time.monotonic() < until


def subscribed(url: str, state: Path, *topics: str) -> None:
    with opened(url, state) as queue:
        for topic in topics:
            queue.subscribe(topic)


# The publisher dies.


@pytest.mark.parametrize(
    ("life", "is_put"),
    [
        (lives.put_and_die_before_it_is_kept, False),
        (lives.put_and_die_before_it_is_sent, True),
        (lives.put_and_die_before_it_is_known_to_have_arrived, True),
    ],
)
def test_a_put_that_was_cut_short_is_completed_and_not_repeated(
    broker: Broker, tmp_path: Path, life: object, is_put: bool
) -> None:
    subscribed(broker.url, tmp_path / "sub.db", "put")
    assert callable(life)
    assert live(life, broker.url, tmp_path / "pub.db") == DIED
    with opened(broker.url, tmp_path / "pub.db") as queue:
        queue.flush()
        assert queue.puts == 1 + is_put
        queue.put("put", "c")
    assert rest(broker.url, tmp_path / "sub.db", "put") == ["a", *["b"] * is_put, "c"]


# The subscriber dies.


def test_a_message_that_was_not_consumed_comes_again_and_a_consumed_one_does_not(
    broker: Broker, tmp_path: Path
) -> None:
    state = tmp_path / "sub.db"
    subscribed(broker.url, state, "got")
    with opened(broker.url, tmp_path / "pub.db") as queue:
        for text in "abc":
            queue.put("got", text)
    for life in (lives.die_before_done, lives.die_before_done, lives.die_after_done, lives.die_before_done):
        assert live(life, broker.url, state) == DIED
    assert (tmp_path / "seen").read_text() == "a a a b "
    assert rest(broker.url, state, "got") == ["b", "c"]


@pytest.mark.parametrize(
    "life", [lives.die_before_the_broker_has_unsubscribed, lives.die_before_the_state_has_unsubscribed]
)
def test_an_unsubscribe_that_was_cut_short_is_completed(broker: Broker, tmp_path: Path, life: object) -> None:
    state = tmp_path / "sub.db"
    subscribed(broker.url, state, "ended")
    assert callable(life)
    assert live(life, broker.url, state) == DIED
    with opened(broker.url, state) as queue, tidemark.sync.connect(broker.url) as tm:
        with pytest.raises(NotSubscribedError):
            queue.get("ended")
        assert f"{state}:ended" not in [each["name"] for each in tm.ask("subscriptions")]


def test_a_subscribe_that_was_cut_short_goes_on_from_its_start(broker: Broker, tmp_path: Path) -> None:
    state = tmp_path / "sub.db"
    assert live(lives.die_before_the_start_is_kept, broker.url, state) == DIED
    with opened(broker.url, tmp_path / "pub.db") as queue:
        queue.put("begun", "a")
    subscribed(broker.url, state, "begun")
    assert rest(broker.url, state, "begun") == ["a"]


# The broker dies.


@pytest.mark.slow
def test_a_put_against_a_dead_broker_ends_in_time_and_is_completed_later(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.running():
        subscribed(broker.url, tmp_path / "sub.db", "t")
        pub, sub = opened(broker.url, tmp_path / "pub.db"), opened(broker.url, tmp_path / "sub.db")
        pub.put("t", "a")
        assert sub.get("t", PATIENCE_SECONDS) == "a"
        broker.kill()
        with pytest.raises(TimedOutError, match="will arrive"):
            pub.put("t", "b", timeout=0.1)
        with pytest.raises(NotConnectedError, match="nothing was put"):
            pub.put("unheard of", "c", timeout=0.1)
        with pytest.raises(NotConnectedError):
            sub.get("t", timeout=0.1)
        assert (pub.puts, pub.waiting) == (2, 1)
        broker.start()
        assert sub.get("t", PATIENCE_SECONDS) == "b"
        pub.flush()
        pub.put("t", "d")
        assert sub.get("t", PATIENCE_SECONDS) == "d"
        broker.kill()
        with pytest.raises(TimedOutError):
            pub.put("t", "e", timeout=0.1)
        with pytest.raises(TimedOutError):
            pub.flush(timeout=0.1)
        pub.close(0)
        sub.close(0)


# Everyone dies.

LIVES = 6
#: The broker is killed when others have died so often; each of the three dies at least once.
BROKER_DIES_AT = (1, 3)


@pytest.mark.slow
def test_whoever_dies_at_whatever_step_each_message_comes_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(20261116)
    broker = Broker(tmp_path)
    parts = {
        lives.produce: tmp_path / "pub.db",
        lives.relay: tmp_path / "relay.db",
        lives.consume: tmp_path / "sub.db",
    }
    with broker.running():
        subscribed(broker.url, parts[lives.relay], "in")
        subscribed(broker.url, parts[lives.consume], "out")
        deaths = dict.fromkeys(parts, 0)
        running = {
            part: begin(part, broker.url, state, chance.randrange(1, 150)) for part, state in parts.items()
        }
        until = time.monotonic() + PATIENCE_SECONDS
        kills = list(BROKER_DIES_AT)
        while running:
            assert time.monotonic() < until, f"not finished: {[part.__name__ for part in running]}"
            if kills and sum(deaths.values()) >= kills[0]:
                del kills[0]
                broker.kill()
                broker.start()
            for part, process in list(running.items()):
                process.join(0.01)
                if process.exitcode is None:
                    continue
                code = process.exitcode
                process.close()
                del running[part]
                assert code in (0, DIED)
                if code == DIED:
                    deaths[part] += 1
                    step = chance.randrange(1, 150) if deaths[part] < LIVES else 1_000_000
                    running[part] = begin(part, broker.url, parts[part], step)
    assert min(deaths.values()) >= 1, "somebody never died"
    database = sqlite3.connect(parts[lives.consume])
    assert database.execute("SELECT n FROM got ORDER BY rowid").fetchall() == [(n,) for n in range(TOTAL)]
    database.close()
