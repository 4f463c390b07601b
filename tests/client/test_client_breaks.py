"""A client and its connection: lost, silent, drained, of another version; what goes on and what is told."""

from __future__ import annotations

import asyncio

import pytest

import tidemark
from tests.client.connected import START, connected, declare, numbers, publish
from tests.client.fake_broker import FakeBroker
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.client.client import Client
from tidemark.client.connecting import link as link_module
from tidemark.client.connecting.addresses import SocketAddress, parse_addresses
from tidemark.client.connecting.connection import PING_SECONDS, SILENT_PINGS_MAX
from tidemark.errors import NotConnectedError, RefusedError, VersionError
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Deliver, Ping, Refused, Subscribe


@connected
async def test_a_durable_subscription_goes_on_after_a_break_without_loss_or_repetition(
    broker: FakeBroker, tm: Client
) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d") as sub:
        await publish(tm, 0, 10)
        assert await numbers(sub, 4) == [0, 1, 2, 3]
        broker.cut()
        await publish(tm, 10, 15)
        await until(lambda: sub._session.is_subscribed)
        assert await numbers(sub, 11) == list(range(4, 15))
        shown = broker.of(Subscribe)[-1].token
        assert shown == CheckpointToken({"p1": int(broker.events["p1"][0].ticks[2])})


@bounded
async def test_a_subscription_that_is_not_durable_tells_what_it_missed() -> None:
    async with (
        FakeBroker() as broker,
        tidemark.connect(broker.url) as tm,
        tm.subscribe("t", gaps=True) as sub,
    ):
        await publish(tm, 0, 3)
        assert await numbers(sub, 1) == [0]
        upto = int(broker.events["p1"][0].ticks[-1])
        broker.cut()
        missed = broker.append("p1", EventBatch.parse(bytearray(broker.events["p1"][0].data)))
        await until(lambda: not sub._session.is_subscribed)
        await until(lambda: sub._session.is_subscribed)
        # What had arrived is not lost with the connection.
        assert await numbers(sub, 2) == [1, 2]
        # The gap is told at once: nothing may ever be published again.
        gap = await sub.next(PATIENCE_SECONDS)
        assert gap == tidemark.Gap("p1", upto, missed, "reconnected", sub.checkpoint)
        await publish(tm, 4, 5)
        assert await numbers(sub, 1) == [4]
        names = [frame.name for frame in broker.of(Subscribe)]
        assert len(set(names)) == 2


@bounded
async def test_it_reconnects_to_another_broker() -> None:
    async with FakeBroker("b1") as one, FakeBroker("b2") as two:
        url = f"tidemark://127.0.0.1:{one.port},127.0.0.1:{two.port}"
        async with tidemark.connect(url) as tm:
            await declare(tm)
            await publish(tm, 0, 4)
            async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
                assert await numbers(sub, 2) == [0, 1]
                two.events, two.topics = one.events, one.topics
                await one.stop()
                await until(lambda: sub._session.is_subscribed and tm.broker == "b2")
                assert await numbers(sub, 2) == [2, 3]


@bounded
async def test_a_broker_that_does_not_answer_is_not_waited_for_while_another_does() -> None:
    async with FakeBroker("dead") as dead, FakeBroker("alive") as alive:
        dead.is_deaf = True
        url = f"tidemark://127.0.0.1:{dead.port},127.0.0.1:{alive.port}"
        async with tidemark.connect(url, connect_timeout=PATIENCE_SECONDS) as tm:
            assert tm.broker == "alive"
            assert dead.heard  # it was tried first
            await until(lambda: not dead.sessions)  # and is left alone now
            # The winner is the broker that the client returns to, although the other one answers again.
            dead.is_deaf = False
            alive.cut()
            await until(lambda: not tm.is_connected)
            await until(lambda: tm.is_connected)
            assert tm.broker == "alive"


@bounded
async def test_the_error_tells_what_became_of_each_address_that_was_tried() -> None:
    (closed,) = free_ports(1)
    async with FakeBroker("deaf") as deaf:
        deaf.is_deaf = True
        url = f"tidemark://127.0.0.1:{deaf.port},127.0.0.1:{closed}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(link_module, "STAGGER_SECONDS", 0.0)
            with pytest.raises(NotConnectedError) as caught:
                await tidemark.connect(url, connect_timeout=0.6).open()
        assert f"127.0.0.1:{deaf.port}: no answer within 0." in str(caught.value)
        assert f"127.0.0.1:{closed}: " in str(caught.value)
        assert "Connect call failed" in str(caught.value)
        url = f"tidemark://127.0.0.1:{deaf.port},127.0.0.1:{closed}"
        with pytest.raises(NotConnectedError, match=f"127.0.0.1:{closed}: not tried yet"):
            await tidemark.connect(url, connect_timeout=0.01).open()


def test_a_broker_that_vanishes_is_noticed_within_six_seconds_by_default() -> None:
    looks_every = PING_SECONDS / 2
    assert SILENT_PINGS_MAX * PING_SECONDS + looks_every <= 6.0


@bounded
async def test_it_goes_where_a_broker_that_is_drained_sends_it() -> None:
    async with FakeBroker("b1") as one, FakeBroker("b2") as two, tidemark.connect(one.url) as tm:
        await declare(tm)
        await publish(tm, 0, 4)
        async with tm.subscribe("t", durable="d", checkpoint=START) as sub:
            assert await numbers(sub, 2) == [0, 1]
            two.events, two.topics = one.events, one.topics
            there = (two.url.removeprefix("tidemark://"),)
            (session,) = one.sessions
            session.send(Refused("subscribe", "d", "draining", "'b1' is being drained", there))
            session.send(Refused("connect", "", "draining", "'b1' is being drained", there))
            await until(lambda: tm._link.is_up and sub._session.is_subscribed and tm.broker == "b2")
            assert await numbers(sub, 2) == [2, 3]
            # It is drained too, and there is nobody else: the first one is tried again.
            (session,) = two.sessions
            session.send(Refused("connect", "", "draining", "'b2' is being drained"))
            await until(lambda: tm._link.is_up and tm.broker == "b1")


@bounded
async def test_a_drained_broker_of_an_older_version_names_no_others_and_its_words_are_not_read() -> None:
    async with FakeBroker("b1") as one, FakeBroker("b2") as two, FakeBroker("b3") as three:
        url = f"{one.url},{two.url.removeprefix('tidemark://')}"
        async with tidemark.connect(url) as tm:
            await until(lambda: tm._link.is_up)
            (session,) = one.sessions
            session.send(Refused("connect", "", "draining", f"'b1' is being drained: go to {three.url}"))
            await until(lambda: tm._link.is_up and tm.broker == "b2")
            assert not three.sessions


@bounded
async def test_addresses_that_are_none_are_left_out() -> None:
    assert parse_addresses(["a:1", "::", "[::1]:2", "b", "c:99999", "a:1", ""]) == (
        SocketAddress("a", 1),
        SocketAddress("::1", 2),
        SocketAddress("b", 7676),
    )


@bounded
async def test_a_publisher_learns_that_a_drained_broker_has_not_logged_an_event() -> None:
    async with FakeBroker("b1") as one, FakeBroker("b2", ("p2",)) as two, tidemark.connect(one.url) as tm:
        await declare(tm)
        await publish(tm, 0, 2)
        there = (two.url.removeprefix("tidemark://"),)
        one.on_publish = lambda frame: Refused(
            "publish", frame.publisher, "draining", "'b1' is being drained", there
        )
        with pytest.raises(RefusedError, match="being drained") as caught:
            await publish(tm, 2, 3)
        assert caught.value.code == "draining"
        await until(lambda: tm._link.is_up and tm.broker == "b2")
        await declare(tm)
        await publish(tm, 2, 3)
        assert (one.count("p1"), two.count("p2")) == (2, 1)


@connected
async def test_a_hole_in_the_stream_starts_the_connection_over(broker: FakeBroker, tm: Client) -> None:
    await declare(tm)
    async with tm.subscribe("t", durable="d") as sub:
        await publish(tm, 0, 2)
        assert await numbers(sub, 2) == [0, 1]
        upto = sub.checkpoint["p1"]
        broker.sessions[0].send(Deliver("d", "p1", upto + 5, upto + 9))
        await until(lambda: len(broker.of(Subscribe)) == 2)
        await publish(tm, 2, 4)
        assert await numbers(sub, 2) == [2, 3]


@bounded
async def test_a_silent_broker_is_asked_and_given_up() -> None:
    async with FakeBroker() as broker, tidemark.connect(broker.url, ping=0.05) as tm:
        await until(lambda: broker.of(Ping))
        assert tm.is_connected
        broker.is_deaf = True
        await until(lambda: not tm.is_connected)
        with pytest.raises(NotConnectedError):
            _ = tm.broker
        broker.is_deaf = False
        await until(lambda: tm.is_connected)


@connected
async def test_administrators_ask_and_are_answered_refused_or_left_alone(
    broker: FakeBroker, tm: Client
) -> None:
    assert await tm.ask("status", depth=2) == {"what": "status", "arguments": {"depth": 2}}
    with pytest.raises(RefusedError, match="no such question"):
        await tm.ask("forbidden")
    broker.is_deaf = True
    with pytest.raises(tidemark.TimedOutError):
        await tm.ask("status", timeout=0.05)
    waiting = asyncio.ensure_future(tm.ask("status"))
    await asyncio.sleep(0.01)
    broker.cut()
    with pytest.raises(NotConnectedError, match="not known"):
        await waiting


@bounded
async def test_a_broker_of_another_version_is_an_error_of_its_own() -> None:
    broker = FakeBroker()

    async with broker:
        broker.is_deaf = True
        opening = asyncio.ensure_future(tidemark.connect(broker.url, connect_timeout=PATIENCE_SECONDS).open())
        await until(lambda: broker.sessions)
        await until(lambda: broker.heard)
        broker.sessions[0].send(Refused("connect", "", "version", "update the client"))
        with pytest.raises(VersionError, match="update the client"):
            await opening


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@bounded
async def test_where_nobody_listens_that_is_told_at_once(host: str) -> None:
    one, two = free_ports(2)
    with pytest.raises(NotConnectedError, match=r"no broker answered: nobody listens .*tidemark up"):
        await tidemark.connect(f"{host}:{one},{host}:{two}", connect_timeout=3600)


@bounded
async def test_a_program_may_wait_for_a_broker_that_is_started_with_it() -> None:
    (port,) = free_ports(1)
    with pytest.raises(NotConnectedError, match="no broker answered in"):
        await tidemark.connect(f"127.0.0.1:{port}", connect_timeout=0.2, wait_for_broker=True)


@bounded
async def test_it_is_logged_that_a_broker_is_lost_and_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeBroker() as broker, tidemark.connect(broker.url):
        broker.cut()
        await until(lambda: "is back" in caplog.text)
    texts = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert texts[0].startswith("lost the broker at 127.0.0.1:")
    assert texts[1] == f"the broker at {broker.url.removeprefix('tidemark://')} is back"
