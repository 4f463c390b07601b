"""The protocols of the peers are spoken as their specifications have them, and what arrives is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tidemark.lab.bench.peers import benchmark
from tidemark.lab.bench.peers.bare_peer import BareReader
from tidemark.lab.bench.peers.catalogue import PEERS, TIDEMARK, Peer
from tidemark.lab.bench.peers.peer_events import EVENT, EVENT_BYTES, HEAD, MARK, EventRows, find_events
from tidemark.lab.bench.peers.protocols import amqp, mqtt, nats, rabbit_stream, redis, stomp
from tidemark.lab.bench.peers.servers import SERVERS, version_in
from tidemark.lab.bench.processes import harness
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.processes.harness import TooSlowError
from tidemark.lab.bench.system.load import Load

LOAD = Load(4)


def heads_in(data: bytes) -> list[tuple[int, int]]:
    heads, _ = find_events(data)
    return list(zip(heads["n"].tolist(), heads["kind"].tolist(), strict=True))


def expected_heads(first: int, count: int) -> list[tuple[int, int]]:
    numbers = np.arange(first, first + count)
    return list(zip(numbers.tolist(), LOAD.kinds_of(numbers).tolist(), strict=True))


def test_an_event_has_250_bytes_and_is_found_by_its_mark_only_once_it_is_whole() -> None:
    assert len(EVENT) == EVENT_BYTES == 250
    rows = EventRows(LOAD, b"PUB bench.0 ", b"\r\n").rows(7, 3, sent=11)
    assert rows.count(MARK) == 3
    heads, last = find_events(rows)
    assert heads.dtype == HEAD
    assert heads["n"].tolist() == [7, 8, 9]
    assert heads["sent"].tolist() == [11, 11, 11]
    assert rows[last:].startswith(MARK)
    assert heads_in(rows[:-3]) == heads_in(rows)[:2], "the last event lacks a byte"
    assert find_events(rows[:-3])[1] == rows.index(MARK, rows.index(MARK) + 1)
    assert find_events(b"PING\r\n")[1] == -1


def test_a_row_names_the_kind_of_its_event_wherever_the_protocol_does() -> None:
    rows = EventRows(LOAD, b"XADD bench.0 kind:0 bench/0 ").rows(0, 20)
    width = len(rows) // 20
    for (_, kind), at in zip(expected_heads(0, 20), range(0, len(rows), width), strict=True):
        assert rows[at:].startswith(b"XADD bench.%d kind:%d bench/%d " % (kind, kind, kind))


def test_redis_commands_are_arrays_of_strings() -> None:
    assert redis.command(b"XREAD", b"0-0") == b"*2\r\n$5\r\nXREAD\r\n$3\r\n0-0\r\n"
    alone = redis.RedisPublisher(LOAD).batch(0, 1, 0)
    kind = expected_heads(0, 1)[0][1]
    head = b"*5\r\n$4\r\nXADD\r\n$7\r\nbench.%d\r\n$1\r\n*\r\n$1\r\ne\r\n$250\r\n" % kind
    assert alone.startswith(head + MARK)
    assert alone.endswith(b"\r\n")
    many = redis.RedisPublisher(LOAD).batch(5, 10, 0)
    assert many.startswith(b"*1\r\n$5\r\nMULTI\r\n")
    assert many.endswith(b"*1\r\n$4\r\nEXEC\r\n")
    assert heads_in(many) == expected_heads(5, 10)


def test_redis_counts_the_ids_of_what_was_added() -> None:
    publisher = redis.RedisPublisher(LOAD)
    answer = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$15\r\n1763367600000-0\r\n$15\r\n1763367600000-1\r\n"
    assert publisher.answers(answer) == 2


def test_nats_publishes_with_a_subject_for_the_answer_and_counts_answers_that_are_cut() -> None:
    assert nats.publication(b"bench.1", b"_INBOX.p", b"ab") == b"PUB bench.1 _INBOX.p 2\r\nab\r\n"
    publisher = nats.NatsPublisher(LOAD)
    assert heads_in(publisher.batch(3, 4, 0)) == expected_heads(3, 4)
    answer = b'MSG _INBOX.p 1 30\r\n{"stream":"BENCH","seq":12}\r\n' * 3
    for cut in range(len(answer)):
        publisher.rest = b""
        assert publisher.answers(answer[:cut]) + publisher.answers(answer[cut:]) == 3, cut


def test_mqtt_packets_have_their_length_in_groups_of_seven_bits() -> None:
    assert mqtt.packet(0x30, bytes(127))[:2] == b"\x30\x7f"
    assert mqtt.packet(0x30, bytes(128))[:3] == b"\x30\x80\x01"
    assert mqtt.packet(0x30, bytes(16_384))[:4] == b"\x30\x80\x80\x01"
    connect = mqtt.connect_packet(b"me", is_clean=False)
    assert connect == b"\x10\x0e\x00\x04MQTT\x04\x00\x00\x00\x00\x02me"
    assert mqtt.subscribe_packet(b"a") == b"\x82\x06\x00\x01\x00\x01a\x01"
    first = mqtt.MqttPublisher(LOAD).batch(65_534, 2, 0)
    width = len(first) // 2
    assert first[:3] == b"\x32\x85\x02", "topic of 7 bytes, its length, the packet identifier, 250 bytes"
    assert first[12:14] == b"\xff\xff", "65535 is the last packet identifier"
    assert first[width + 12 : width + 14] == b"\x00\x01"


def test_mqtt_counts_acknowledgements_of_four_bytes() -> None:
    publisher = mqtt.MqttPublisher(LOAD)
    assert publisher.answers(b"\x40\x02\x00\x01\x40\x02") == 1
    assert publisher.answers(b"\x00\x02") == 1


def test_amqp_frames_end_with_their_mark_and_a_message_has_three() -> None:
    assert (
        amqp.method(amqp.CONFIRM_SELECT, b"\x00") == b"\x01\x00\x01\x00\x00\x00\x05\x00\x55\x00\x0a\x00\xce"
    )
    sent = amqp.published(b"x", b"k", b"ab")
    assert sent == (
        b"\x01\x00\x01\x00\x00\x00\x0b\x00\x3c\x00\x28\x00\x00\x01x\x01k\x00\xce"
        b"\x02\x00\x01\x00\x00\x00\x0f\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x10\x00\x02\xce"
        b"\x03\x00\x01\x00\x00\x00\x02ab\xce"
    )
    assert heads_in(amqp.AmqpPublisher(LOAD).batch(0, 9, 0)) == expected_heads(0, 9)


def test_amqp_confirms_may_come_one_by_one_in_any_order_or_up_to_a_number() -> None:
    confirms = amqp.Confirms()
    confirms.confirm(2, is_multiple=False)
    confirms.confirm(4, is_multiple=False)
    assert confirms.count == 2
    confirms.confirm(3, is_multiple=True)
    assert confirms.count == 4
    confirms.confirm(3, is_multiple=False)
    assert confirms.count == 4
    publisher = amqp.AmqpPublisher(LOAD)
    ack = amqp.method(amqp.ACK, (5).to_bytes(8, "big") + b"\x01")
    assert publisher.answers(ack[:10]) == 0
    assert publisher.answers(ack[10:]) == 5


def test_the_stream_protocol_has_one_frame_a_stream_and_confirms_by_count() -> None:
    assert rabbit_stream.request(21, rabbit_stream.text(b"/")) == (
        b"\x00\x00\x00\x0b\x00\x15\x00\x01\x00\x00\x00\x07\x00\x01/"
    )
    frames, rest = rabbit_stream.whole_frames(rabbit_stream.StreamPublisher(LOAD).batch(0, 40, 0) + b"\x00")
    assert rest == b"\x00"
    kinds = {kind for _, kind in expected_heads(0, 40)}
    assert len(frames) == len(kinds)
    found = [each for frame in frames for each in heads_in(frame)]
    assert sorted(found) == expected_heads(0, 40)
    for frame in frames:
        assert {kind for _, kind in heads_in(frame)} == {frame[4]}, "a publisher's id is the kind"
    confirm = rabbit_stream.frame(rabbit_stream.CONFIRM, b"\x00\x00\x00\x00\x02" + bytes(16))
    assert rabbit_stream.StreamPublisher(LOAD).answers(confirm * 3) == 6


def test_stomp_sends_a_batch_as_one_transaction_with_one_receipt() -> None:
    assert stomp.frame("ACK", {"id": 7}) == b"ACK\nid:7\n\n\x00"
    publisher = stomp.StompPublisher(LOAD)
    batch = publisher.batch(0, 5, 0)
    assert batch.startswith(b"BEGIN\ntransaction:t\n\n\x00SEND\ndestination:/topic/bench\n")
    assert batch.endswith(b"COMMIT\ntransaction:t\nreceipt:5\n\n\x00")
    assert heads_in(batch) == expected_heads(0, 5)
    receipt = b"RECEIPT\nreceipt-id:5\n\n\x00\n"
    assert publisher.answers(receipt[:14]) + publisher.answers(receipt[14:]) == 5


def said_by(reader: BareReader) -> bytearray:
    """What the reader says from now on."""
    said = bytearray()
    reader.connection_made(SimpleNamespace(write=said.extend))  # type: ignore[arg-type]
    return said


def reader_of(make: Callable[..., Any], kind: int = 1) -> tuple[Any, bytearray]:
    reader = make(DeliveryRecord("me", kind), lambda _, __: None)
    return reader, said_by(reader)


def entries(first: int, count: int) -> bytes:
    """Entries of a Redis stream, all of kind 1."""
    rows = EventRows(LOAD, b"*2\r\n$3\r\n9-7\r\n*2\r\n$1\r\ne\r\n$250\r\n", b"\r\n")
    return rows.rows_of(np.arange(first, first + count), np.ones(count, np.int32))


def test_an_xread_reader_goes_on_from_the_last_id_wherever_the_answer_is_cut() -> None:
    answer = b"*1\r\n*2\r\n$7\r\nbench.1\r\n*3\r\n" + entries(4, 3)
    for cut in range(0, len(answer), 7):
        reader, said = reader_of(redis.XreadReader)
        reader.subscribe()
        assert said.endswith(b"$7\r\nbench.1\r\n$3\r\n0-0\r\n")
        said.clear()
        reader.data_received(answer[:cut])
        reader.data_received(answer[cut:])
        assert reader.record.count == 3
        assert said.count(b"XREAD") == 1
        assert said.endswith(b"$7\r\nbench.1\r\n$3\r\n9-7\r\n")


def test_a_group_reader_acknowledges_each_entry_and_first_asks_for_what_it_missed() -> None:
    reader, said = reader_of(redis.GroupReader)
    reader._known = True
    reader.subscribe()
    assert said.endswith(b"$1\r\n0\r\n")
    reader.data_received(b"*1\r\n*2\r\n$7\r\nbench.1\r\n*0\r\n")
    assert said.endswith(b"$1\r\n>\r\n")
    said.clear()
    reader.data_received(b"*1\r\n*2\r\n$7\r\nbench.1\r\n*2\r\n" + entries(0, 2))
    assert said.startswith(redis.command(b"XACK", b"bench.1", b"me", b"9-7", b"9-7"))
    assert reader.record.count == 2


def test_a_stream_reader_leaves_out_what_a_chunk_has_from_before_its_place() -> None:
    reader, said = reader_of(rabbit_stream.StreamReader)
    rows = EventRows(LOAD, b"\x00\x00\x00\xfa").rows_of(np.arange(10), np.ones(10, np.int32))
    head = b"\x01\x50\x00\x00\x0a\x00\x00\x00\x0a" + bytes(16) + (0).to_bytes(8, "big") + bytes(16)
    chunk = rabbit_stream.frame(rabbit_stream.DELIVER, head + rows)
    reader._place = 4
    reader.record._last = 3
    reader.data_received(chunk[:100])
    reader.data_received(chunk[100:])
    assert reader.record.count == 6
    assert bytes(said) == rabbit_stream.frame(rabbit_stream.CREDIT, b"\x01\x00\x01")


def test_a_reader_at_a_peer_notices_what_is_repeated_or_of_another_kind() -> None:
    reader, _ = reader_of(amqp.AmqpReader)
    rows = EventRows(LOAD, b"")
    reader.data_received(rows.rows_of(np.array([3, 3]), np.ones(2, np.int32)))
    assert "repeated or out of order" in reader.record.problem
    reader, _ = reader_of(amqp.AmqpReader)
    reader.data_received(rows.rows_of(np.array([3]), np.zeros(1, np.int32)))
    assert "another kind" in reader.record.problem


def test_every_system_says_when_it_acknowledges_and_how_events_are_chosen() -> None:
    assert next(iter(PEERS)) == TIDEMARK
    for peer in PEERS.values():
        assert peer.durability
        assert peer.selection
        assert peer.server in SERVERS
    assert version_in("Redis server v=7.0.15 sha=00000000:0") == "7.0.15"
    assert version_in("mosquitto version 2.0.11") == "2.0.11"


@pytest.mark.long
@pytest.mark.parametrize("name", [TIDEMARK, "Redis XREAD, not synced"])
def test_a_system_that_is_installed_runs_every_workload_exactly(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tidemark and Redis, in little; `./run bench peers --quick` runs all that are installed."""
    if SERVERS[PEERS[name].server].version() is None:
        pytest.skip(f"{name} is not installed: apt-get install {SERVERS[PEERS[name].server].package}")
    monkeypatch.setenv(harness.DIRECTORY, str(tmp_path))
    tiny = benchmark.PeersEffort((name,), 1, 8, 0.0, 0.1, 10, 20, 8, 400)
    sections = list(benchmark.sections(tiny))
    measurements = [each for section in sections for each in section.measurements]
    assert {each.case for each in measurements} == {name}
    assert len({each.metric for each in measurements}) == len(measurements) == 10
    assert all(each.value >= 0 for each in measurements)
    assert any(note.startswith(f"{name} ") for note in sections[-1].notes)
    assert not list(tmp_path.iterdir()), "a bench removes its files"


def test_a_system_that_is_not_installed_or_too_slow_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: object, peer: Peer, __: object) -> dict[str, float]:
        if peer.name != TIDEMARK:
            raise TooSlowError("not in time")
        return {"fan-out, deliveries/s": 3.0}

    monkeypatch.setattr(type(SERVERS["nats"]), "version", lambda _: None)
    monkeypatch.setattr(type(SERVERS["redis"]), "version", lambda _: "7.0")
    monkeypatch.setattr(benchmark, "_bare_sync_ms", lambda: 0.1)
    monkeypatch.setattr(benchmark, "WORKLOADS", {"fan-out": slow})
    monkeypatch.setattr(benchmark, "BETWEEN_SECONDS", 0)
    names = (TIDEMARK, "NATS JetStream", "Redis XREAD, synced")
    fanned, systems = benchmark.sections(benchmark.PeersEffort(names, 2, 8, 0.0, 0.1, 10, 20, 8, 400))
    assert [(each.case, each.value) for each in fanned.measurements] == [(TIDEMARK, 3.0)]
    assert fanned.notes == ["Redis XREAD, synced did not finish in time: fan-out, not in time"]
    assert "NATS JetStream: not installed (Debian's package nats-server)" in systems.notes
