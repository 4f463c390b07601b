"""What came together is heard before the broker settles: batches that came in one read share one sync."""

from __future__ import annotations

from tests.broker.desk import MORNING, Desk, batch
from tidemark.broker.effects import (
    AppendEvents,
    ClientFrameReceived,
    Effect,
    LogSynced,
    PeerFrameReceived,
    SendClient,
    SyncLog,
    Woken,
)
from tidemark.broker.hearing import may_settle_later
from tidemark.wire.frames import Ack, Nack, Publish, Subscribe


def test_only_what_a_publisher_publishes_may_wait_to_be_settled() -> None:
    assert may_settle_later(ClientFrameReceived(1, Publish("p", "me", 1, batch(0))))
    for stimulus in (
        Woken(),
        LogSynced(1),
        ClientFrameReceived(1, Ack(())),
        ClientFrameReceived(1, Subscribe("s", "t", "", True, 1)),
        PeerFrameReceived("u", Nack("p", (), 1)),
    ):
        assert not may_settle_later(stimulus)


def test_batches_that_are_heard_before_the_broker_settles_share_a_record_and_a_sync() -> None:
    at = Desk()
    at.declare("t")
    effects: list[Effect] = []
    for number in (1, 3, 5):
        frame = Publish("p", "me", number, batch(0, 0))
        effects += at.broker.hear(ClientFrameReceived(1, frame), 0, MORNING)
    assert effects == []
    append, sync = at.broker.settle()
    assert isinstance(append, AppendEvents)
    assert (append.sequence, append.batch.ticks.tolist()) == (1, [MORNING + at for at in range(6)])
    assert isinstance(sync, SyncLog)
    answers = at.broker.hear(LogSynced(sync.ticket), 1, MORNING + 9)
    assert [each.frame.sequence for each in answers if isinstance(each, SendClient)] == [2, 4, 6]  # type: ignore[union-attr]
    at.broker.settle()
