"""Rendezvous hashing: one choice for every process that has to come to the same one."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.client.publishing.assignment import PubendChoice
from tidemark.spark.options import SinkOptions
from tidemark.spark.sink import publishing
from tidemark.wire import rendezvous
from tidemark.wire.answers import PubendStatus
from tidemark.wire.frames import Welcome

PUBENDS = [f"p{n}" for n in range(7)]
#: Of the keys "me", "you" and "them", as clients have always chosen.
CHOICES = ["p3", "p3", "p2"]


def test_a_candidate_that_goes_moves_only_the_keys_it_held() -> None:
    before = {f"k{n}": rendezvous.chosen(f"k{n}", PUBENDS) for n in range(200)}
    after = {key: rendezvous.chosen(key, PUBENDS[1:]) for key in before}
    assert {key for key in before if before[key] != after[key]} == {
        key for key, held in before.items() if held == PUBENDS[0]
    }


def test_keys_spread_over_all_candidates() -> None:
    assert {rendezvous.chosen(f"k{n}", PUBENDS) for n in range(200)} == set(PUBENDS)


def test_the_choice_never_changes() -> None:
    assert rendezvous.weight("p", "u", "c") == 2044322909954590767
    assert [rendezvous.chosen(key, PUBENDS) for key in ("me", "you", "them")] == CHOICES


def test_without_candidates_there_is_no_choice() -> None:
    with pytest.raises(ValueError, match="empty"):
        rendezvous.chosen("k", [])


class _AskedBroker:
    """A broker that hosts PUBENDS, as the pipeline asks it."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> _AskedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pubends(self) -> list[PubendStatus]:
        return [PubendStatus(each, 0, None, None, None, None, 0, 0) for each in PUBENDS]


def test_the_pipeline_chooses_the_pubend_that_a_client_of_the_same_name_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "RetryingClient", _AskedBroker)
    publisher = publishing.BrokerPublisher(SinkOptions("tidemark://x", "t"))
    for name in (f"publisher-{n}" for n in range(50)):
        choice = PubendChoice(name, None, is_named=True)
        choice.up(Welcome("b", 1, 1, tuple(PUBENDS)))
        assert publisher.pubend_of(name, None) == choice.of_publisher()
