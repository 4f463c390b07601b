"""How connections share the event loop: a flood of one is handled in slices, with others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from threading import Event as ThreadEvent

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, events, play
from tests.waiting import PATIENCE_SECONDS, until
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.batches.checking import CheckWork
from tidemark.message.codec.rest import Rest
from tidemark.message.schema import Schema
from tidemark.node.connection import Connection
from tidemark.node.runtime import Runtime
from tidemark.node.turns import turns as turns_module
from tidemark.node.turns.accounts import HALF_SECONDS, Account, Accounts
from tidemark.node.turns.disk_reads import DiskReads
from tidemark.node.turns.turns import SLICE_FRAMES_MAX, Turns
from tidemark.ticks import TICK_LAST
from tidemark.wire.codec import encode
from tidemark.wire.frames import (
    ClientFrame,
    Fetch,
    Fetched,
    Ping,
    Pong,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Topic,
)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Talker:
    """A connection with so many slices of work, each of which takes so long."""

    def __init__(
        self,
        name: str,
        slices: int,
        clock: Clock,
        order: list[str],
        seconds: float,
        address: Account | None = None,
        *,
        is_short: bool = False,
    ) -> None:
        self.name, self.slices, self._clock, self._order, self._seconds = name, slices, clock, order, seconds
        self.account = Account(clock, address)
        self.is_short = is_short

    def go_on(self) -> bool:
        self._order.append(self.name)
        self._clock.now += self._seconds
        self.account.used(self._seconds)
        self.slices -= 1
        return self.slices > 0


def passes(turns: Turns, loop: asyncio.AbstractEventLoop) -> int:
    """Run the loop until no connection waits; returns the number of its passes."""
    found = 0
    while turns._waiting or turns._short:
        loop.call_soon(loop.stop)
        loop.run_forever()
        found += 1
    return found


def test_connections_that_have_used_the_same_are_served_in_turns() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    for name, slices in (("a", 3), ("b", 1), ("c", 2)):
        turns.wait(Talker(name, slices, clock, order, 0.0001))
    passes(turns, loop)
    assert order == ["a", "b", "c", "a", "c", "a"]
    loop.close()


def test_who_has_used_little_waits_for_one_slice_and_not_for_one_of_each() -> None:
    """A dozen busy connections, each of whose slices takes too long, and one that says little."""
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    for number in range(12):
        turns.wait(Talker(f"busy {number}", 40, clock, order, 0.010))
    for _ in range(12):
        turns._pass()
    small = Talker("small", 1, clock, order, 0.0005)
    waited: list[int] = []
    for _ in range(20):
        before = len(order)
        small.slices = 1
        turns.wait(small)
        while order.count("small") <= len(waited):
            turns._pass()
        waited.append(order.index("small", before) - before)
    assert waited == [0] * 20
    loop.close()


def test_what_the_disk_has_done_is_collected_before_each_slice() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    turns.before_slice = lambda: order.append("disk")
    for name in "ab":
        turns.wait(Talker(name, 1, clock, order, 0.0001))
    passes(turns, loop)
    assert order == ["disk", "a", "disk", "b"]
    loop.close()


def test_a_slice_that_took_too_long_is_paid_with_the_next_turns() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    turns.wait(Talker("long", 2, clock, order, 0.010))
    turns.wait(Talker("short", 9, clock, order, 0.001))
    passes(turns, loop)
    assert order == ["long", *["short"] * 9, "long"]
    loop.close()


def test_what_was_done_for_a_connection_elsewhere_counts_while_it_waits() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    charged, other = Talker("charged", 1, clock, order, 0.001), Talker("other", 1, clock, order, 0.001)
    turns.wait(charged)
    turns.wait(other)
    charged.account.used(0.5)
    passes(turns, loop)
    assert order == ["other", "charged"]
    loop.close()


def test_a_thousand_connections_of_one_address_do_not_keep_another_address_waiting() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    crowd, alone = Account(clock), Account(clock)
    for number in range(1_000):
        turns.wait(Talker(f"crowd {number}", 5, clock, order, 0.001, crowd))
    for _ in range(100):
        turns._pass()
    before = len(order)
    turns.wait(Talker("alone", 20, clock, order, 0.001, alone))
    while order.count("alone") < 20:
        turns._pass()
    assert order[before:] == ["alone"] * 20
    loop.close()


def test_what_comes_is_handled_at_once_unless_somebody_waits_who_has_used_less() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    fresh, heavy = (Talker(name, 1, clock, order, 0.001) for name in ("fresh", "heavy"))
    heavy.account.used(0.1)
    assert turns.may_go_now(heavy), "nobody waits"
    waiting = Talker("waiting", 1, clock, order, 0.001)
    waiting.account.used(0.01)
    turns.wait(waiting)
    assert (turns.may_go_now(fresh), turns.may_go_now(heavy)) == (True, False)
    loop.close()


def test_what_is_handled_at_once_is_bounded_in_each_pass_of_the_loop() -> None:
    loop, clock = asyncio.new_event_loop(), Clock()
    turns, connection = Turns(loop, clock, clock), Talker("any", 1, clock, [], 0.001)
    found = []
    for seconds in (turns_module.AT_ONCE_SECONDS / 2, turns_module.AT_ONCE_SECONDS):
        turns.went(seconds)
        found.append(turns.may_go_now(connection))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert [*found, turns.may_go_now(connection)] == [True, False, True]
    loop.close()


def test_what_is_short_goes_first_however_little_others_have_used() -> None:
    """A publisher that says a little all the time, and others that come anew again and again."""
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    steady = Talker("steady", 1, clock, order, 0.0005, is_short=True)
    steady.account.used(0.1)
    for number in range(20):
        turns.wait(Talker(f"new {number}", 50, clock, order, 0.001))
    assert turns.may_go_now(steady)
    turns.wait(steady)
    assert not turns.may_go_now(Talker("later", 1, clock, order, 0.0005, is_short=True)), "one waits already"
    turns._pass()
    assert order[0] == "steady"
    loop.close()


def test_of_what_is_short_the_first_goes_first_and_others_get_a_slice_in_each_pass() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    crowd = Account(clock)
    crowd.used(0.01)
    turns.wait(Talker("long", 2, clock, order, 0.001))
    for number in range(5):
        turns.wait(Talker(f"short {number}", 1, clock, order, 0.001, crowd, is_short=True))
    # An address that has used less goes before one that has used more.
    turns.wait(Talker("alone", 1, clock, order, 0.001, Account(clock), is_short=True))
    passes(turns, loop)
    assert order == [
        *("alone", "short 0", "long"),
        *("short 1", "short 2", "long"),
        *("short 3", "short 4"),
    ]
    loop.close()


def test_who_uses_much_wants_nothing_short() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    greedy = Talker("greedy", 1, clock, order, 0.0005, is_short=True)
    greedy.account.used(2 * turns_module.LIGHT_SECONDS)
    turns.wait(greedy)
    turns.wait(Talker("other", 1, clock, order, 0.001))
    passes(turns, loop)
    assert order == ["other", "greedy"]
    loop.close()


def test_half_of_what_was_used_is_forgotten_after_a_while_and_the_order_stays() -> None:
    clock = Clock()
    one, other = Account(clock), Account(clock)
    one.used(0.4)
    other.used(0.1)
    orders = one.order, other.order
    clock.now += HALF_SECONDS
    assert [one.recent, other.recent] == pytest.approx([0.2, 0.05])
    assert [one.order, other.order] == pytest.approx(list(orders))
    other.used(0.2)
    assert one.order < other.order


def test_the_connections_of_an_address_share_one_account() -> None:
    clock = Clock()
    accounts = Accounts(clock)
    first, second, stranger = accounts.open("10.0.0.1"), accounts.open("10.0.0.1"), accounts.open("10.0.0.2")
    first.used(0.1)
    assert stranger.order < second.order < first.order


def test_a_pass_of_the_loop_gives_all_that_wait_a_bounded_time_together() -> None:
    loop, clock, order = asyncio.new_event_loop(), Clock(), list[str]()
    turns = Turns(loop, clock, clock)
    for number in range(10):
        turns.wait(Talker(str(number), 1, clock, order, turns_module.SLICE_SECONDS))
    assert passes(turns, loop) >= 10 * turns_module.SLICE_SECONDS / turns_module.TURN_SECONDS
    assert order == [str(number) for number in range(10)]
    loop.close()


def test_a_small_client_is_served_after_a_bounded_part_of_a_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every slice is one frame here, so that the order of frames does not depend on how fast they are."""
    monkeypatch.setattr(turns_module, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(turns_module, "TURN_SECONDS", -1.0)
    handled: list[int] = []
    said = Runtime.client_said

    def counted(self: Runtime, client: int, frames: list[ClientFrame], until: float) -> int:
        done = said(self, client, frames, until)
        for frame in frames[:done]:  # of which one may stand for several
            handled.extend([client] * (len(frame.parts) or 1 if isinstance(frame, Publish) else 1))
        return done

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        flooder, small = await stage.client(node, "flooder"), await stage.client(node, "small")
        await flooder.declare()
        flood = b"".join(
            bytes(piece) for n in range(1, 2_001) for piece in encode(Publish("main", "f", n, events(n, 1)))
        )
        flooder.writer.write(flood)
        while len(handled) < 50:
            await asyncio.sleep(0)
        before = len(handled)
        await small.say(Publish("main", "s", 1, events(1, 1)))
        await small.hear(Published)
        # How much of the flood is handled until the small one's event is synced depends on the disk.
        served = next(at for at in range(before, len(handled)) if handled[at] != handled[0])
        assert served - before < 200, "the flood was handled first"
        while (await flooder.hear(Published)).sequence < 2_000:
            pass
        assert handled.count(handled[0]) == 2_001

    monkeypatch.setattr(Runtime, "client_said", counted)
    play(story)


def test_a_flood_waits_in_the_socket_and_not_in_the_broker(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        (connection,) = node.server.connections
        most = 0
        pings = b"".join(bytes(piece) for n in range(20_000) for piece in encode(Ping(n)))
        writing = asyncio.ensure_future(_write(client.writer, pings))
        for _ in range(20_000):
            pong = await client.hear(Pong)
            most = max(most, len(connection._unheard))
        await writing
        assert pong.stamp == 19_999
        assert most <= SLICE_FRAMES_MAX

    play(story)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def test_a_publisher_over_its_share_is_paused_and_others_are_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", limits__in_flight="64KiB"))
        flooder, small = await stage.client(node, "flooder"), await stage.client(node, "small")
        await flooder.declare()
        by_name = {each.name: each for each in node.server.connections}
        pauses: list[str] = []
        pause = Connection.pause

        def counted(self: Connection) -> None:
            pauses.append(self.name)
            pause(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "pause", counted)
            for n in range(1, 2_001, 100):
                await flooder.say(Publish("main", "f", n, events(n, 100)))
            await small.publish(1, publisher="s")
            while (await flooder.hear(Published)).sequence < 2_000:
                pass
        assert "flooder" in pauses
        assert "small" not in pauses
        assert not by_name["flooder"].is_paused

    play(story)


def test_a_frame_that_takes_long_to_look_at_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, may_go_on = ThreadEvent(), ThreadEvent()
    look = CheckWork.__call__

    def slowly(self: CheckWork, rest: Rest) -> None:
        looked.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        look(self, rest)

    monkeypatch.setattr(CheckWork, "__call__", slowly)
    lists = Schema.parse("[n: int, many: *(string)*]")
    builder = BatchBuilder()
    for _ in range(500):
        builder.add(Shape("lists", lists.fingerprint), lists.encode({"n": 1, "many": ["text"] * 20}))

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        slow, gone, quick = [await stage.client(node, name) for name in ("slow", "gone", "quick")]
        await slow.say(Topic("lists", False, (lists.text,)))
        await slow.hear(Topic)
        await quick.declare()
        await slow.say(Publish("main", "slow", 1, builder.build()), Ping(7))
        await until(looked.is_set)
        await gone.say(Publish("main", "gone", 1, builder.build()))
        await gone.close()
        for sequence in range(1, 4):
            await quick.publish(sequence)
        may_go_on.set()
        assert (await slow.hear(Published)).sequence == 500
        assert (await slow.hear(Pong)).stamp == 7, "what follows waits for it"

    play(story)


def test_an_event_that_comes_together_with_its_topic_is_prepared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []
    steps_before = Audience.steps_before

    def noted(self: Audience, name: str) -> Iterator[None]:
        prepared.append(name)
        return steps_before(self, name)

    monkeypatch.setattr(Audience, "steps_before", noted)
    schema = Schema.parse("[n: int]")
    builder = BatchBuilder()
    builder.add(Shape("new", schema.fingerprint), schema.encode({"n": 1}))

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        many, other = await stage.client(node, "many"), await stage.client(node, "other")
        await many.say(*(Subscribe(f"s{n}", "new.>", f"n = {n}", False, 1_000) for n in range(20)))
        await many.say(*(Subscribe(f"t{n}", ">", f"n = {n}", False, 1_000) for n in range(20)))
        for _ in range(40):
            await many.hear(Subscribed)
        await other.say(Topic("new", False, (schema.text,)), Publish("main", "o", 1, builder.build()))
        await other.hear(Published)
        assert prepared == ["new"]

    play(story)


def test_the_thread_rests_longer_while_connections_wait() -> None:
    loop, clock = asyncio.new_event_loop(), Clock()
    turns = Turns(loop, clock, clock)
    assert turns.rest(0.01) == 0.01
    turns.wait(Talker("waiting", 1, clock, [], 0.001))
    assert turns.rest(0.01) == turns_module.REST_TIMES * 0.01
    assert turns.rest(10.0) == turns_module.REST_SECONDS_MAX
    turns.close()
    loop.close()


def test_the_thread_does_the_steps_of_links_first() -> None:
    loop, order = asyncio.new_event_loop(), list[str]()
    turns = Turns(loop)
    begun, may_go_on = ThreadEvent(), ThreadEvent()

    def first(_: Rest) -> None:
        begun.set()
        assert may_go_on.wait(PATIENCE_SECONDS)

    def done(name: str) -> None:
        order.append(name)
        if len(order) == 3:
            loop.stop()

    turns.run(first, lambda _: done("first"))
    assert begun.wait(PATIENCE_SECONDS)
    turns.run(lambda _: None, lambda _: done("client"))
    turns.run(lambda _: None, lambda _: done("link"), is_first=True)
    may_go_on.set()
    loop.run_forever()
    assert order == ["first", "link", "client"]
    turns.close()
    loop.close()


def test_what_is_read_from_the_log_waits_for_its_turn_and_counts_as_the_askers_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[str] = []
    in_turn: list[bool] = []
    charge, go_on = Connection.charge, DiskReads.go_on

    def noted(self: Connection, seconds: float) -> None:
        charged.append(self.name)
        charge(self, seconds)

    def turned(self: DiskReads) -> bool:
        in_turn.append(True)
        return go_on(self)

    monkeypatch.setattr(Connection, "charge", noted)
    monkeypatch.setattr(DiskReads, "go_on", turned)

    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        asker, other = await stage.client(node, "asker"), await stage.client(node, "other")
        await other.declare()
        await other.publish(1)
        await asker.say(Fetch(1, "main", 0, TICK_LAST, ">", "n = 1", 1 << 20))
        assert (await asker.hear(Fetched)).batch is not None
        assert charged == ["other", "asker"], "what was published counts as the publisher's time"
        assert in_turn

    play(story)
