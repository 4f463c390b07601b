"""What came together is heard before the broker settles: batches that came in one read share one sync."""

from __future__ import annotations

import pytest

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
from tidemark.broker.overlay.overlay import OverlayRole
from tidemark.wire.frames import Ack, Nack, Publish, Subscribe


def test_only_what_is_published_and_what_is_committed_may_wait_to_be_settled() -> None:
    assert may_settle_later(ClientFrameReceived(1, Publish("p", "me", 1, batch(0))))
    assert may_settle_later(ClientFrameReceived(1, Ack((), 1)))
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


def test_what_was_only_published_goes_to_the_log_and_nothing_else_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = Desk()
    at.declare("t")
    at.broker.settle()
    settled: list[str] = []
    settle = OverlayRole.settle

    def counted(self: OverlayRole) -> None:
        settled.append("settled")
        settle(self)

    monkeypatch.setattr(OverlayRole, "settle", counted)
    at.broker.hear(ClientFrameReceived(1, Publish("p", "me", 1, batch(0))), 0, MORNING)
    wake = at.broker.next_wake()
    assert at.broker.settle(is_log_held=True) == []
    assert [type(each) for each in at.broker.settle()] == [AppendEvents, SyncLog]
    assert settled == []
    assert at.broker.next_wake() == wake
    at.broker.hear(LogSynced(1), 1, MORNING + 9)
    at.broker.settle()
    assert settled == ["settled"]
