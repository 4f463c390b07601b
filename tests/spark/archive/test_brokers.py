"""One archive of several brokers, and readers of several brokers: nothing missing, nothing mixed up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.errors import ConfigError, NotConnectedError
from tidemark.spark import connections
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.status import status
from tidemark.spark.broker_answers import HostedPubend, merged_pubends, merged_topics
from tidemark.spark.connections import (
    RetryingClient,
    RetryingClients,
    retrying_client,
    urls_of,
)
from tidemark.spark.options import source_options
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.ticks import TICK_MAX, TICK_MIN
from tidemark.wire.answers import PubendStatus, TopicStatus


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[LiveNode]]:
    options = {"retention.archive": "true"}
    with (
        live_node(tmp_path / "one", **options, **{"broker.pubends": "east"}) as one,
        live_node(tmp_path / "two", **options, **{"broker.pubends": "west"}) as two,
    ):
        yield [one, two]


def publish(node: LiveNode, count: int) -> list[int]:
    with sync.connect(node.url) as tm:
        found = tm.publish_many("trades", [{"n": n} for n in range(count)])
        return [tick for tick in found if tick is not None]


def ticks_in(path: Path, pubend: str) -> list[int]:
    found = archive_reader.read(path, pubend, TICK_MIN, TICK_MAX)
    return [int(tick) for batch in found for tick in batch.ticks]


def test_one_archive_serves_several_brokers_and_waits_for_none(
    nodes: list[LiveNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(connections, "AWAY_SECONDS", 0.0)
    path, urls = tmp_path / "archive", [node.url for node in nodes]
    ticks = {"east": publish(nodes[0], 10), "west": publish(nodes[1], 7)}
    with Archive(urls, path) as archive:
        assert archive.round() is not None
        assert {name: ticks_in(path, name) for name in ticks} == ticks
        for node, name in zip(nodes, ticks, strict=True):
            with sync.connect(node.url) as tm:
                assert tm.ask("pubends")[0]["archived"] >= ticks[name][-1]
        found = status(path, urls)
        assert [each.lag_events for each in found.pubends] == [0, 0]
        assert found.away == {}
        nodes[1].stop()
        archive.disconnect()
        ticks["east"] += publish(nodes[0], 5)
        assert archive.round() is not None
        assert list(archive.away) == [urls[1]]
        assert ticks_in(path, "east") == ticks["east"]
        nodes[1].start()
        ticks["west"] += publish(nodes[1], 5)
        assert archive.round() is not None
        assert archive.away == {}
    assert {name: ticks_in(path, name) for name in ticks} == ticks
    assert status(path, urls).lag_events == 0


def test_the_status_is_there_without_the_brokers(nodes: list[LiveNode], tmp_path: Path) -> None:
    path = tmp_path / "archive"
    publish(nodes[0], 3)
    with Archive(nodes[0].url, path) as archive:
        archive.round()
    publish(nodes[0], 4)
    found = status(path, nodes[0].url)
    assert (found.lag_events, found.pubends[0].lag_events) == (4, 4)
    assert found.lag_seconds is not None
    assert found.lag_seconds > 0
    nodes[0].stop()
    found = status(path, nodes[0].url)
    assert (found.events, found.lag_events, list(found.away)) == (3, None, [nodes[0].url])


def test_brokers_with_pubends_of_one_name_are_no_overlay(tmp_path: Path) -> None:
    with (
        live_node(tmp_path / "one") as one,
        live_node(tmp_path / "two") as two,
        Archive([one.url, two.url], tmp_path / "archive") as archive,
        pytest.raises(ConfigError, match=r"'main' is hosted by tidemark.*://.* and by tidemark.*://"),
    ):
        archive.round()


def test_pubends_that_nobody_archives_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Whether a broker in this process logs that it is ready depends on what other tests have configured.
    caplog.set_level(logging.WARNING)
    with live_node(tmp_path / "one") as one:
        asked = connections.ArchiveBrokers([one.url])
        try:
            asked.pubends()
            assert not caplog.records
            asked._hosted = None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    connections,
                    "merged_pubends",
                    lambda _: [HostedPubend("other", 0, None, None, None, None, 0, 0)],
                )
                asked.pubends()
                asked.pubends()
        finally:
            asked.close()
    assert [record.getMessage() for record in caplog.records] == [
        "not archived here: main; name the brokers that host them, too"
    ]


def test_a_source_reads_the_pubends_of_all_brokers(nodes: list[LiveNode], tmp_path: Path) -> None:
    ticks = sorted(publish(nodes[0], 6) + publish(nodes[1], 4))
    both = ",".join(node.url for node in nodes)
    options = source_options({"broker": both, "topic": "trades"})
    scan = SourceScan(options, topic_columns_of(options))
    planner = Planner(scan)
    try:
        parts = planner.everything()
    finally:
        planner.close()
    assert {part.pubend for part in parts if isinstance(part, TickRange)} == {"east", "west"}
    found = [tick for part in parts for batch in scan.read(part) for tick in batch["_tick"].to_pylist()]
    assert sorted(found) == ticks
    # All have to be there: what one of them hosts must not be left out in silence.
    nodes[1].stop()
    with pytest.raises(NotConnectedError), RetryingClients(urls_of(both), 0.2) as asked:
        asked.pubends()
    del tmp_path


def test_urls_are_told_from_addresses_that_stand_in_for_each_other() -> None:
    one, two = "tidemark://a:1,b:2", "tidemark://c"
    assert urls_of(one) == (one,)
    assert urls_of(f"{one}, {two}") == urls_of([one, two]) == urls_of([one, two, one]) == (one, two)
    secured = "tidemark+tls://a:1,b:2", "tidemark+tls://c"
    assert urls_of(", ".join(secured)) == urls_of(secured) == secured
    assert isinstance(retrying_client(one, 1.0), RetryingClient)
    assert isinstance(retrying_client(f"{one},{two}", 1.0), RetryingClients)
    mistakes: list[Any] = ["", "http://a", f"{one},tidemark://:", []]
    for wrong in mistakes:
        with pytest.raises(ConfigError):
            urls_of(wrong)


def test_answers_of_several_brokers_become_one() -> None:
    numbers = (7, 6, None, 5, 4, 3, 2)
    assert merged_pubends([("u", [PubendStatus("b", *numbers)]), ("v", [PubendStatus("a", *numbers)])]) == [
        HostedPubend("a", *numbers, broker="v"),
        HostedPubend("b", *numbers, broker="u"),
    ]
    one, other = TopicStatus("t", True, ("x", "y")), TopicStatus("t", True, ("z", "x"))
    assert merged_topics([[one], [other]]) == (TopicStatus("t", True, ("x", "y", "z")),)
