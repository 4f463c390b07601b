"""What a node reads at once goes to the disk together: in one record, with one sync or one commit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.live_node import config_at
from tests.node.speech import Stage, events, play
from tidemark.broker.effects import AppendEvents, CommitTables, Effect, SaveReleased, SyncLog
from tidemark.node.runtime import Runtime
from tidemark.node.turns.settling import SETTLED_LATER_ROWS_MAX
from tidemark.node.turns.sync_hold import SyncHold
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Acked, Publish, Published

Kind = TypeVar("Kind", bound=Effect)


def given_to_disk(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, *kinds: type[Kind]) -> list[Kind]:
    """The list to which effects of these kinds are added when the disk threads are given them."""
    put, seen = runtime.disk.put, list[Kind]()

    def noting(effects: Sequence[Effect]) -> None:
        seen.extend(each for each in effects if isinstance(each, kinds))
        put(effects)

    monkeypatch.setattr(runtime.disk, "put", noting)
    return seen


def test_what_a_node_reads_at_once_goes_to_the_disk_in_one_record_with_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        (number,) = node.runtime.clients
        seen = given_to_disk(node.runtime, monkeypatch, AppendEvents, SyncLog)
        frames = [Publish("main", "p", first, events(first, 10)) for first in (1, 11, 21, 31)]
        assert node.runtime.client_said(number, list(frames)) == 4
        append, sync = seen
        assert isinstance(append, AppendEvents)
        assert isinstance(sync, SyncLog)
        assert (append.sequence, append.batch.count) == (1, 40)
        while (await client.hear(Published)).sequence < 40:
            pass
        monkeypatch.undo()

    play(story)


def test_what_comes_while_a_sync_is_under_way_goes_to_the_disk_in_one_record_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        (number,) = node.runtime.clients
        seen = given_to_disk(node.runtime, monkeypatch, AppendEvents, SyncLog)
        for first in (1, 11, 21, 31):  # one read after the other, and nothing is heard of the disk meanwhile
            frame = Publish("main", "p", first, events(first, 10))
            assert node.runtime.client_said(number, [frame]) == 1
        assert len(seen) == 2
        while (await client.hear(Published)).sequence < 40:
            pass
        appended = [(each.sequence, each.batch.count) for each in seen if isinstance(each, AppendEvents)]
        assert appended == [(1, 10), (11, 30)]
        assert [type(each) for each in seen] == [AppendEvents, SyncLog, AppendEvents, SyncLog]
        monkeypatch.undo()

    play(story)


@pytest.mark.parametrize("comes_more", [True, False])
def test_what_comes_first_after_an_answer_waits_a_moment_for_more(
    comes_more: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        runtime = node.runtime
        (number,) = runtime.clients
        seen = given_to_disk(runtime, monkeypatch, AppendEvents)
        runtime.sync_hold = SyncHold(lambda: 0.0)  # only the timer ends the wait, however slow the machine is
        runtime.sync_hold.answered(64 << 10)
        assert runtime.client_said(number, [Publish("main", "p", 1, events(1, 10))]) == 1
        assert not seen, "the log waits"
        if comes_more:
            assert runtime.client_said(number, [Publish("main", "p", 11, events(11, 2_000))]) == 1
        while (await client.hear(Published)).sequence < (2_010 if comes_more else 10):
            pass
        assert [(each.sequence, each.batch.count) for each in seen] == [(1, 2_010 if comes_more else 10)]
        monkeypatch.undo()

    play(story)


def test_what_completes_the_expected_goes_to_the_disk_in_the_same_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        runtime = node.runtime
        (number,) = runtime.clients
        seen = given_to_disk(runtime, monkeypatch, AppendEvents)
        runtime.sync_hold.answered(64 << 10)
        assert runtime.client_said(number, [Publish("main", "p", 1, events(1, 2_000))]) == 1
        assert [each.batch.count for each in seen] == [2_000], "it waits for no further pass"
        while (await client.hear(Published)).sequence < 2_000:
            pass
        monkeypatch.undo()

    play(story)


def test_what_several_subscribers_commit_before_the_loop_goes_on_goes_to_the_disk_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        names = ("a", "b", "c")
        clients = [await stage.client(node, name) for name in names]
        await clients[0].declare()
        starts: list[CheckpointToken] = []
        for client, name in zip(clients, names, strict=True):
            await client.subscribe(name)
            starts.append(CheckpointToken({"main": await client.started()}))
        seen = given_to_disk(node.runtime, monkeypatch, SaveReleased, CommitTables)
        for number, name, start in zip(list(node.runtime.clients), names, starts, strict=True):
            assert node.runtime.client_said(number, [Ack(((name, start),), 1)]) == 1
        assert not seen, "what can be read now is read first"
        for client in clients:
            assert (await client.hear(Acked)).ticket == 1
        assert [type(each) for each in seen[:4]] == [SaveReleased] * 3 + [CommitTables]
        monkeypatch.undo()

    play(story)


def test_what_subscribers_commit_does_not_gather_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data"))
        client = await stage.client(node)
        await client.declare()
        await client.subscribe("a")
        start = CheckpointToken({"main": await client.started()})
        (number,) = node.runtime.clients
        seen = given_to_disk(node.runtime, monkeypatch, SaveReleased)
        for ticket in range(1, SETTLED_LATER_ROWS_MAX + 2):
            assert node.runtime.client_said(number, [Ack((("a", start),), ticket)]) == 1
        assert len(seen) == SETTLED_LATER_ROWS_MAX
        while (await client.hear(Acked)).ticket <= SETTLED_LATER_ROWS_MAX:
            pass
        assert len(seen) == SETTLED_LATER_ROWS_MAX + 1
        monkeypatch.undo()

    play(story)
