"""Publishing through a client: batching, acknowledgements, breaks, refusals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import tidemark
from tests.client.connected import connected
from tests.client.fake_broker import FakeBroker
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.client.client import Client
from tidemark.client.publishing import publisher as publisher_module
from tidemark.errors import ClientError, EncodeError, RefusedError, SchemaError
from tidemark.message import BatchBuilder, Schema, Shape
from tidemark.message.publisher_names import made_name
from tidemark.wire.frames import Frame, Publish, Refused, Topic
from tidemark.wire.moving.frames import Leave

TRADES = "[symbol: string, price: double, qty: int]"
TRADE = {"symbol": "ACME", "price": 10.5, "qty": 3}


@connected
async def test_everything_published_in_one_turn_of_the_loop_is_one_batch(
    broker: FakeBroker, tm: Client
) -> None:
    await tm.create_topic("trades", TRADES)
    acks = [tm.publish("trades", {**TRADE, "qty": qty}) for qty in range(10)]
    ticks = await asyncio.gather(*acks)
    first = ticks[0]
    assert first is not None
    assert ticks == list(range(first, first + 10))
    assert [(frame.sequence, frame.batch.count) for frame in broker.of(Publish)] == [(1, 10)]


@connected
async def test_many_are_published_in_few_batches_and_in_order(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("t", "[n: long, pad: bytes]")
    pad = bytes(1_000)
    ticks = await tm.publish_many("t", ({"n": n, "pad": pad} for n in range(3_000)))
    assert len(ticks) == 3_000
    known = [tick for tick in ticks if tick is not None]
    assert ticks == sorted(known)
    assert len(broker.of(Publish)) == 3
    assert broker.count() == 3_000


@connected
async def test_a_batch_built_elsewhere_is_published_as_it_is(broker: FakeBroker, tm: Client) -> None:
    schema = Schema.parse("[n: int]")
    await tm.create_topic("t", schema)
    builder = BatchBuilder()
    for n in range(4):
        builder.add(Shape("t", schema.fingerprint), schema.encode({"n": n}), publisher="elsewhere")
    pending = tm.publish("t", {"n": 9})
    ticks = await tm.publish_batch(builder.build())
    assert (await pending, len(ticks)) == (1010, 4)
    assert [frame.sequence for frame in broker.of(Publish)] == [1, 2]


@connected
async def test_a_topic_that_nobody_declared_becomes_open_and_each_shape_is_declared_once(
    broker: FakeBroker, tm: Client
) -> None:
    values = [
        {"a": 1},
        {"a": 2},
        {"a": 1, "b": "x"},
        {"a": 7},
        {"deep": [{"x": 1}]},
        {"deep": [{"x": 2}]},
    ]
    await asyncio.gather(*(tm.publish("notes", value) for value in values))
    assert broker.topics["notes"].is_open
    assert len(broker.topics["notes"].schemas) == 3
    assert len(broker.of(Topic)) == 3
    async with tm.subscribe("notes", durable="d", checkpoint=tidemark.CheckpointToken({"p1": 1})) as sub:
        got = [await sub.next(PATIENCE_SECONDS) for _ in values]
        assert [event.value for event in got if isinstance(event, tidemark.Event)] == values


@bounded
async def test_a_topic_is_declared_from_a_text_a_schema_or_a_dataclass() -> None:
    @dataclass
    class Trade:
        symbol: str
        price: float

    async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
        await tm.create_topic("a", TRADES)
        await tm.create_topic("b", Schema.parse(TRADES))
        await tm.create_topic("c", Trade)
        await tm.create_topic("d")
        assert broker.topics["d"].is_open
        assert [schema.text for schema in await tm.schemas("c")] == [Schema.of(Trade).text]
        assert await tm.schemas("nothing") == []
        assert await tm.publish("c", Trade("ACME", 1.5)) is not None
        with pytest.raises(SchemaError):
            await tm.create_topic("e", "[oops")
        with pytest.raises(RefusedError, match="declared otherwise") as caught:
            await tm.create_topic("d", TRADES)
        assert (caught.value.what, caught.value.code) == ("topic", "schema")


@connected
async def test_a_shape_is_added_to_an_open_topic_before_anything_is_published_in_it(
    broker: FakeBroker, tm: Client
) -> None:
    await tm.publish("notes", {"text": "x"})
    await tm.create_topic("notes", TRADES, is_open=True)
    await tm.create_topic("notes", TRADES, is_open=True)
    assert broker.topics["notes"].is_open
    assert [schema.text for schema in await tm.schemas("notes")] == ["[text: string]", TRADES]
    schema = Schema.parse(TRADES)
    builder = BatchBuilder()
    builder.add(Shape("notes", schema.fingerprint), schema.encode(TRADE))
    assert len(await tm.publish_batch(builder.build())) == 1
    await tm.create_topic("declared", TRADES)
    with pytest.raises(RefusedError, match="declared otherwise"):
        await tm.create_topic("declared", TRADES, is_open=True)


@connected
async def test_a_value_that_does_not_fit_is_refused_before_it_is_sent(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("trades", TRADES)
    with pytest.raises(EncodeError, match="price"):
        await tm.publish("trades", {"symbol": "ACME", "qty": 3})
    with pytest.raises(EncodeError, match="dict"):
        await tm.publish("open", 5)
    with pytest.raises(EncodeError, match="over the limit"):
        await tm.publish("open", {"data": bytes(2 << 20)})
    for wrong in ({"priority": 10}, {"validity": 0.0}, {"key": bytes(70_000)}):
        with pytest.raises(EncodeError):
            tm.publish("trades", TRADE, **wrong)
    assert not broker.of(Publish)
    assert await tm.publish("trades", TRADE, key="k", priority=9, validity=0.5) is not None
    batch = broker.of(Publish)[0].batch
    assert (batch.key(0), int(batch.prelude("priority")[0])) == (b"k", 9)
    assert int(batch.prelude("validity_ms")[0]) == 500


@connected
async def test_a_key_a_priority_and_a_validity_go_with_each_of_many(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("trades", TRADES)
    with pytest.raises(EncodeError, match="key"):
        await tm.publish_many("trades", [TRADE], key=bytes(70_000))
    assert not broker.of(Publish)
    await tm.publish_many("trades", [TRADE] * 3, key="ACME", priority=7, validity=2)
    batch = broker.of(Publish)[0].batch
    assert [batch.key(row) for row in range(3)] == [b"ACME"] * 3
    assert batch.prelude("priority").tolist() == [7] * 3
    assert batch.prelude("validity_ms").tolist() == [2_000] * 3


@connected
async def test_what_was_not_acknowledged_is_published_once_whatever_breaks(
    broker: FakeBroker, tm: Client
) -> None:
    await tm.create_topic("t", "[n: int]")
    plan = iter(["cut", "lose", "cut", None, "cut"])

    def hook(_: Publish) -> Frame | str | None:
        return next(plan, None)

    broker.on_publish = hook
    acks = []
    for n in range(40):
        acks.append(tm.publish("t", {"n": n}))
        await asyncio.sleep(0.005)
    ticks = await asyncio.gather(*acks)
    assert len(ticks) == 40
    read = Schema.parse("[n: int]").accessor("n")
    logged = [read(batch.message(row)) for batch in broker.events["p1"] for row in range(batch.count)]
    assert logged == list(range(40))


@connected
async def test_a_lost_acknowledgement_does_not_make_up_ticks(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("t", "[n: int]")
    plan = iter(["lose", "cut"])
    broker.on_publish = lambda _: next(plan, None)
    first = tm.publish("t", {"n": 1})
    await until(lambda: broker.count() == 1)
    second = tm.publish("t", {"n": 2})
    assert (await first, await second) == (None, int(broker.events["p1"][1].ticks[0]))


@connected
async def test_a_full_disk_is_waited_for_and_told_only_after_the_timeout(
    broker: FakeBroker, tm: Client
) -> None:
    await tm.create_topic("t", "[n: int]")
    full = [True]

    def hook(frame: Publish) -> Frame | None:
        return Refused("publish", frame.publisher, "full", "the disk is full") if full[0] else None

    broker.on_publish = hook
    patient = tm.publish("t", {"n": 1})
    with pytest.raises(RefusedError, match=r"the disk is full.*still tried") as caught:
        await tm.publish("t", {"n": 2}, timeout=0.5)
    assert caught.value.code == "full"
    full[0] = False
    assert await patient is not None
    assert broker.count() == 2


@connected
async def test_of_many_batches_that_find_a_disk_full_none_is_lost_or_told_of_numbers(
    broker: FakeBroker, tm: Client
) -> None:
    await tm.create_topic("t", "[n: int]")
    fulls = [True, True]  # the first batch of each round: those behind it miss it

    def hook(frame: Publish) -> Frame | None:
        is_first = frame.sequence == 1 and fulls
        return Refused("publish", frame.publisher, "full", "it is full") if is_first and fulls.pop() else None

    broker.on_publish = hook
    promises = []
    for n in range(8):
        promises.append(tm.publish("t", {"n": n}))
        await asyncio.sleep(0)  # a batch each, all under way at once
    ticks = await asyncio.gather(*promises)
    assert ticks == sorted({tick for tick in ticks if tick is not None})
    assert broker.count() == 8
    assert len({frame.publisher for frame in broker.of(Publish)}) == 1


@bounded
async def test_events_wait_for_the_broker_of_their_pubend_and_are_not_published_elsewhere() -> None:
    async with FakeBroker("b1", ("p1",)) as one, FakeBroker("b2", ("p2",)) as two:
        url = f"tidemark://127.0.0.1:{one.port},127.0.0.1:{two.port}"
        async with tidemark.connect(url) as tm:
            await tm.create_topic("t", "[n: int]")
            two.topics = one.topics
            assert tm.broker == "b1"
            await tm.publish("t", {"n": 0})
            one.on_publish = lambda _: "cut"
            stuck = tm.publish("t", {"n": 1}, timeout=0.5)
            await until(lambda: one.count("p1") == 2)
            await one.stop()
            with pytest.raises(tidemark.TimedOutError, match=r"'p1'.*not known"):
                await stuck
            assert await tm.publish("t", {"n": 2}) is not None
            assert tm.broker == "b2"
            assert (one.count("p1"), two.count("p2")) == (2, 1)
            # Back at the first: its numbers are not trusted any more, a fresh publisher goes on.
            one.on_publish = None
            await one.start()
            await two.stop()
            await until(lambda: tm.is_connected and tm.broker == "b1")
            assert await tm.publish("t", {"n": 3}) is not None
            assert one.count("p1") == 3
            assert len({frame.publisher for frame in (*one.of(Publish), *two.of(Publish))}) == 3


@connected
async def test_a_broker_that_lost_its_disk_is_noticed(broker: FakeBroker, tm: Client) -> None:
    await tm.create_topic("t", "[n: int]")
    await tm.publish("t", {"n": 0})
    broker.publishers.clear()
    with pytest.raises(RefusedError) as caught:
        await tm.publish("t", {"n": 1})
    assert caught.value.code == "sequence"
    assert await tm.publish("t", {"n": 2}) is not None


@bounded
async def test_a_named_publisher_goes_on_where_its_application_says() -> None:
    async with FakeBroker() as broker:
        async with tidemark.connect(broker.url, publisher="orders") as tm:
            await tm.create_topic("t", "[n: int]")
            with pytest.raises(ClientError, match="sequence=1"):
                await tm.publish("t", {"n": 1})
            await tm.publish("t", {"n": 1}, sequence=1)
            await tm.publish_many("t", [{"n": 2}, {"n": 3}], sequence=2)
            with pytest.raises(ClientError, match="sequence=4"):
                await tm.publish("t", {"n": 9}, sequence=9)
        async with tidemark.connect(broker.url, publisher="orders", pubend="p1") as tm:
            # The application crashed, and is sure of 1 only.
            ticks = await tm.publish_many("t", [{"n": 2}, {"n": 3}, {"n": 4}], sequence=2)
            assert ticks[:2] == [None, None]
            assert broker.count() == 4
        async with tidemark.connect(broker.url, publisher="orders") as tm:
            with pytest.raises(RefusedError) as caught:
                await tm.publish("t", {"n": 9}, sequence=9)
            assert caught.value.code == "sequence"
        async with tidemark.connect(broker.url, pubend="elsewhere") as tm:
            with pytest.raises(RefusedError, match="does not host"):
                await tm.publish("t", {"n": 9})


@bounded
async def test_a_named_publisher_waits_for_its_last_broker_unless_its_application_knows_better() -> None:
    async with (
        FakeBroker(version=7) as one,
        FakeBroker(pubends=("p2",), version=7) as two,
        tidemark.connect(f"{one.url},{two.url.removeprefix('tidemark://')}", publisher="orders") as tm,
    ):
        await tm.create_topic("t", "[n: int]")
        two.topics = one.topics
        await tm.publish("t", {"n": 1}, sequence=1)
        await one.stop()
        await until(lambda: tm.is_connected)
        waiting = tm.publish("t", {"n": 2}, sequence=2)
        await until(lambda: two.of(Leave))
        assert two.of(Leave)[0] == Leave("p1", "orders", 1, 1, "p2")
        assert not two.of(Publish)
        with pytest.raises(ClientError, match="3 is the number of the next one"):
            await tm.move_publisher(after=3)
        await tm.move_publisher(after=1)
        assert await waiting is not None
        assert [(each.sequence, each.batch.count) for each in two.of(Publish)] == [(2, 1)]
        await tm.publish("t", {"n": 3}, sequence=3)
        async with tidemark.connect(two.url, publisher="orders", pubend="p2") as fixed:
            with pytest.raises(ClientError, match="without a fixed pubend"):
                await fixed.move_publisher(after=1)
        # A pubend may forget names of this form, so that such a publisher stays where it is.
        async with tidemark.connect(two.url, publisher=made_name("0" * 16)) as made:
            with pytest.raises(ClientError, match="moves"):
                await made.move_publisher(after=1)


@bounded
async def test_publishing_waits_for_room_and_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "UNACKNOWLEDGED_BYTES_MAX", 2_000)

    async with FakeBroker() as broker, tidemark.connect(broker.url) as tm:
        await tm.create_topic("t", "[pad: bytes]")
        broker.on_publish = lambda _: "lose"
        values = [{"pad": bytes(900)} for _ in range(6)]
        acks = [tm.publish("t", value) for value in values]
        await until(lambda: broker.count() == 3)
        with pytest.raises(tidemark.TimedOutError, match="nothing was published"):
            await tm.publish("t", values[0], timeout=0.1)
        broker.on_publish = None
        await broker.stop()
        with pytest.raises(tidemark.NotConnectedError, match="nothing was published"):
            await tm.publish("t", values[0], timeout=0.1)
        await broker.start()
        await asyncio.gather(*acks)
        assert broker.count() == 6


@bounded
async def test_closing_waits_for_acknowledgements_and_later_calls_say_so() -> None:
    async with FakeBroker() as broker:
        async with tidemark.connect(broker.url) as tm:
            acks = [tm.publish("t", {"n": n}) for n in range(20)]
        assert all(ack.done() and ack.result() is not None for ack in acks)
        assert broker.count() == 20
        with pytest.raises(tidemark.ClosedError):
            tm.publish("t", {"n": 1})
        broker.on_publish = lambda _: "lose"
        tm = await tidemark.connect(broker.url)
        lost = tm.publish("t", {"n": 1})
        await tm.close(timeout=0.1)
        with pytest.raises(tidemark.TimedOutError, match="was closed"):
            await lost


@bounded
async def test_nobody_there_is_an_error_that_names_each_broker() -> None:
    async with FakeBroker() as broker:
        port = broker.port
    with pytest.raises(tidemark.NotConnectedError, match=rf"127\.0\.0\.1:{port}.*tidemark up"):
        await tidemark.connect(f"tidemark://127.0.0.1:{port}", connect_timeout=0.2)
    deaf = FakeBroker(is_deaf=True)
    async with deaf:
        with pytest.raises(tidemark.NotConnectedError, match="no answer"):
            await tidemark.connect(deaf.url, connect_timeout=0.2)


@connected
async def test_a_large_batch_is_published_in_parts_that_a_broker_takes(
    broker: FakeBroker, tm: Client
) -> None:
    schema = Schema.parse("[pad: bytes]")
    await tm.create_topic("t", schema)
    builder = BatchBuilder()
    for _ in range(9):
        builder.add(Shape("t", schema.fingerprint), schema.encode({"pad": bytes(1_000_000)}))
    assert len(await tm.publish_batch(builder.build())) == 9
    assert [(each.sequence, each.batch.count) for each in broker.of(Publish)] == [(1, 4), (5, 4), (9, 1)]


@connected
async def test_a_batch_that_names_too_much_is_refused_at_once(broker: FakeBroker, tm: Client) -> None:
    builder = BatchBuilder()
    for number in range(2_000):
        builder.add(Shape("t", 7), b"x", publisher=f"{number:0200}")
    with pytest.raises(EncodeError, match="publish it in parts"):
        await tm.publish_batch(builder.build())
    assert broker.of(Publish) == []
