"""What came together is heard before the broker settles: batches that came in one read share one sync."""

from __future__ import annotations

from tests.broker.desk import MORNING, Desk, batch
from tidemark.broker.effects import (
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


def kinds(effects: list[Effect]) -> list[str]:
    return [type(each).__name__ for each in effects]


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


def test_batches_that_are_heard_before_the_broker_settles_share_a_sync() -> None:
    at = Desk()
    at.declare("t")
    effects: list[Effect] = []
    for number in (1, 3, 5):
        frame = Publish("p", "me", number, batch(0, 0))
        effects += at.broker.hear(ClientFrameReceived(1, frame), 0, MORNING + number)
    assert kinds(effects) == ["AppendEvents"] * 3
    settled = at.broker.settle()
    assert kinds(settled) == ["SyncLog"]
    assert isinstance(settled[0], SyncLog)
    answers = at.broker.hear(LogSynced(settled[0].ticket), 1, MORNING + 9)
    assert [each.frame.sequence for each in answers if isinstance(each, SendClient)] == [2, 4, 6]  # type: ignore[union-attr]
    at.broker.settle()
