"""The synchronous client: the same, blocking, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import tidemark
import tidemark.sync
from tests.client.fake_broker import FIRST_TICK, FakeBroker
from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import EncodeError
from tidemark.message import BatchBuilder, EventBatch, Schema, Shape
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Publish

START = CheckpointToken({"p1": FIRST_TICK})


def test_publish_and_iterate_without_a_loop(broker: FakeBroker) -> None:
    with tidemark.sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: int]")
        assert [schema.text for schema in tm.schemas("t")] == ["[n: int]"]
        with tm.subscribe("t", durable="d") as sub:
            tick = tm.publish("t", {"n": 0}, key="k")
            assert tm.publish_many("t", ({"n": n} for n in range(1, 10))) == list(range(1020, 1029))
            seen = []
            for event in sub:
                assert isinstance(event, tidemark.Event)
                seen.append(event["n"])
                if event["n"] == 9:
                    assert event.checkpoint == sub.checkpoint
                    break
            assert seen == list(range(10))
            assert sub.next(timeout=0.01) is None
            assert tick == 1010
        assert broker.subscribers["d"].acked == {"p1": 1028}
        assert tm.ask("status")["what"] == "status"
        tm.unsubscribe("d")
        assert not broker.subscribers


def test_many_share_a_key_and_an_open_topic_takes_a_shape(broker: FakeBroker) -> None:
    with tidemark.sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: long]", is_open=True)
        assert broker.topics["t"].is_open
        tm.publish_many("t", [{"n": 1}, {"n": 2}], key="k")
        assert [broker.of(Publish)[0].batch.key(row) for row in range(2)] == [b"k", b"k"]


def test_batches_end_when_nothing_comes_in_time(broker: FakeBroker) -> None:
    with tidemark.sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: int]")
        tm.publish_many("t", [{"n": n} for n in range(100)])
        with tm.subscribe("t", durable="d", checkpoint=START) as sub:
            first = sub.next(PATIENCE_SECONDS)  # the others are here then too
            assert first is not None
            found = [n for batch in sub.batches(timeout=0.05) for n in batch.column("n").tolist()]
            assert [first["n"], *found] == list(range(100))
            sub.ack(sub.checkpoint, sync=True)
        assert broker.subscribers["d"].acked["p1"] == sub.checkpoint["p1"]


def test_many_threads_may_publish(broker: FakeBroker) -> None:
    with tidemark.sync.connect(broker.url) as tm, ThreadPoolExecutor(8) as pool:
        tm.create_topic("t", "[n: int]")
        ticks = list(pool.map(lambda n: tm.publish("t", {"n": n}), range(200)))
        assert len(set(ticks)) == 200
        assert broker.count() == 200


def test_a_transaction_of_two_subscriptions(broker: FakeBroker) -> None:
    with tidemark.sync.connect(broker.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", durable="a", ack="transacted") as one, tm.subscribe("t", durable="b") as two:
            tm.publish("t", {"n": 1})
            assert one.next(PATIENCE_SECONDS) is not None
            assert two.next(PATIENCE_SECONDS) is not None
            with tm.transaction() as tx:
                tx.ack(one)
                tx.ack(two)
            assert broker.subscribers["a"].acked == broker.subscribers["b"].acked == {"p1": 1010}


def test_errors_come_to_the_caller_and_a_closed_client_says_so(broker: FakeBroker) -> None:
    tm = tidemark.sync.connect(broker.url)
    tm.create_topic("t", "[n: int]")
    with pytest.raises(EncodeError):
        tm.publish("t", {"m": 1})
    sub = tm.subscribe("t")
    tm.close()
    tm.close()
    with pytest.raises(tidemark.ClosedError):
        tm.publish("t", {"n": 1})
    with pytest.raises(tidemark.ClosedError):
        sub.next(1)
    broker_gone = broker.url.replace(str(broker.port), "1")
    with pytest.raises(tidemark.NotConnectedError):
        tidemark.sync.connect(broker_gone, connect_timeout=0.1)


def test_batches_leave_in_order_without_waiting_for_each_other(broker: FakeBroker) -> None:
    schema = Schema.parse("[n: int]")

    def batch(numbers: range) -> EventBatch:
        builder = BatchBuilder()
        for n in numbers:
            builder.add(Shape("t", schema.fingerprint), schema.encode({"n": n}))
        return builder.build()

    with tidemark.sync.connect(broker.url, publisher="loader") as tm:
        tm.create_topic("t", schema)
        ticks = tm.publish_batches([batch(range(2)), batch(range(2, 5))], sequence=1)
        assert [len(each) for each in ticks] == [2, 3]
        assert tm.publish_batches([batch(range(5, 6))], sequence=6)[0][0] > ticks[1][-1]  # type: ignore[operator]
        assert [(frame.sequence, frame.batch.count) for frame in broker.of(Publish)] == [
            (1, 2),
            (3, 3),
            (6, 1),
        ]
    with tidemark.sync.connect(broker.url) as tm:
        assert [len(each) for each in tm.publish_batches([batch(range(2)), batch(range(1))])] == [2, 1]


def test_of_many_batches_as_much_is_under_way_as_fits_and_they_stay_in_order(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema.parse("[n: int]")
    batches = []
    for n in range(20):
        builder = BatchBuilder()
        builder.add(Shape("t", schema.fingerprint), schema.encode({"n": n}))
        batches.append(builder.build())
    monkeypatch.setattr(tidemark.sync, "UNDER_WAY_BYTES_MAX", 3 * len(batches[0].data))
    with tidemark.sync.connect(broker.url, publisher="loader") as tm:
        tm.create_topic("t", schema)
        ticks = [tick for (tick,) in tm.publish_batches(batches, sequence=1)]
        assert next(frame.sequence for frame in broker.of(Publish)) == 1
        assert sum(frame.batch.count for frame in broker.of(Publish)) == 20
        assert None not in ticks
        assert ticks == sorted(ticks)  # type: ignore[type-var]
