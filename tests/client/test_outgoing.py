"""The numbering of a publisher: batches, receipts, repetition."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.client.publishing.outgoing import SEAL_BYTES, SEAL_SHAPES, PublisherStream, Receipt
from tidemark.errors import ClientError, TidemarkError
from tidemark.message import Schema, Shape
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.limits import PUBLISH_NAMES_BYTES_MAX

SCHEMA = Schema.parse("[n: long]")
SHAPE = Shape("t", SCHEMA.fingerprint)


class Kept:
    """A promise without a loop."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: TidemarkError | None = None
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: Any, /) -> None:
        self.result, self.is_done = result, True

    def set_exception(self, exception: TidemarkError, /) -> None:
        self.error, self.is_done = exception, True


def add(stream: PublisherStream, number: int = 0, deadline: float = 9.0) -> Kept:
    kept = Kept()
    stream.add(SHAPE, SCHEMA.encode({"n": number}), Receipt(kept, deadline, is_single=True))
    return kept


def test_what_gathers_leaves_as_one_batch_numbered_on() -> None:
    stream = PublisherStream("me", "p")
    first = [add(stream) for _ in range(3)]
    assert [(sequence, batch.count) for sequence, batch in stream.unsent()] == [(1, 3)]
    second = [add(stream) for _ in range(2)]
    assert [(sequence, batch.count) for sequence, batch in stream.unsent()] == [(4, 2)]
    assert stream.published(3, 103) > 0
    assert [kept.result for kept in first] == [101, 102, 103]
    assert not any(kept.done() for kept in second)
    stream.published(5, 220)
    assert [kept.result for kept in second] == [219, 220]
    assert stream.is_empty


def test_ticks_of_events_acknowledged_together_with_later_ones_are_not_made_up() -> None:
    stream = PublisherStream("me", "p")
    first = add(stream)
    stream.seal()
    second = add(stream)
    list(stream.unsent())
    stream.published(2, 50)
    assert first.done()
    assert (first.result, second.result) == (None, 50)


def test_a_named_publisher_may_have_published_a_part_in_a_former_life() -> None:
    stream = PublisherStream("me", "p", first=5, is_named=True)
    kept = [add(stream) for _ in range(3)]
    assert [sequence for sequence, _ in stream.unsent()] == [5]
    stream.published(7, 70)
    assert [each.result for each in kept] == [None, None, 70]
    later = [add(stream) for _ in range(2)]
    list(stream.unsent())
    stream.published(9, 90)
    assert [each.result for each in later] == [89, 90]


def test_a_rewound_stream_sends_the_same_batches_again() -> None:
    stream = PublisherStream("me", "p")
    for number in range(3):
        add(stream, number)
        stream.seal()
    sent = [(sequence, bytes(batch.data)) for sequence, batch in stream.unsent()]
    stream.published(1, 10)
    stream.rewind()
    assert [(sequence, bytes(batch.data)) for sequence, batch in stream.unsent()] == sent[1:]


def test_a_batch_is_sealed_when_it_is_large() -> None:
    stream = PublisherStream("me", "p")
    message = bytes(SEAL_BYTES // 2)
    for _ in range(5):
        stream.add(SHAPE, message, Receipt(Kept(), 9.0, is_single=True))
    assert [(sequence, batch.count) for sequence, batch in stream.unsent()] == [(1, 2), (3, 2), (5, 1)]


def test_receipts_are_overdue_at_their_deadline_and_abandoned_with_their_stream() -> None:
    stream = PublisherStream("me", "p")
    early, late = add(stream, deadline=1.0), add(stream, deadline=2.0)
    assert stream.deadline() == 1.0
    assert [receipt.promise for receipt in stream.overdue(1.5)] == [early]
    early.set_exception(ClientError("too late"))
    assert stream.deadline() == 2.0
    error = ClientError("gone")
    assert stream.abandon(error) > 0
    assert late.error is error
    assert stream.is_empty


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.data())
def test_whatever_is_lost_each_event_is_logged_once_and_in_order(data: st.DataObject) -> None:
    stream = PublisherStream("me", "p")
    logged: list[int] = []
    link: list[tuple[int, EventBatch]] = []
    published = 0
    kept: list[Kept] = []

    def broker() -> int | None:
        """Take one batch off the link, as a pubend does; the sequence it would acknowledge."""
        sequence, batch = link.pop(0)
        if sequence > len(logged) + 1:
            return None
        read = SCHEMA.accessor("n")
        rows = [read(batch.message(row)) for row in range(batch.count)]
        logged.extend(rows[len(logged) + 1 - sequence :])
        return len(logged)

    for _ in range(data.draw(st.integers(0, 60))):
        match data.draw(st.sampled_from(("add", "send", "arrive", "lose ack", "break"))):
            case "add":
                kept.append(add(stream, published))
                published += 1
            case "send":
                link.extend(stream.unsent())
            case "arrive" if link:
                sequence = broker()
                if sequence is not None:
                    stream.published(sequence, sequence)
            case "lose ack" if link:
                broker()
                link.clear()
                stream.rewind()
            case "break":
                link.clear()
                stream.rewind()
    stream.rewind()
    link = list(stream.unsent())
    while link:
        sequence = broker()
        assert sequence is not None
        stream.published(sequence, sequence)
    assert logged == list(range(published))
    assert stream.is_empty
    # Ticks equal numbers here: whatever tick was given must be right.
    assert all(each.result in (None, number + 1) for number, each in enumerate(kept))


def test_a_batch_is_sealed_before_it_names_more_than_a_broker_takes() -> None:
    stream = PublisherStream("me", "p")
    for fingerprint in range(SEAL_SHAPES + 1):
        receipt = Receipt(Kept(), 9.0, is_single=True)
        stream.add(Shape("t" * 255, fingerprint), SCHEMA.encode({"n": 1}), receipt)
    batches = [batch for _, batch in stream.unsent()]
    assert [batch.count for batch in batches] == [SEAL_SHAPES, 1]
    assert max(batch.names_bytes for batch in batches) <= PUBLISH_NAMES_BYTES_MAX
