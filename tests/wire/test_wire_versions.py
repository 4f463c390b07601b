"""Which version two sides speak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.errors import VersionError, WireError
from tidemark.wire import versions
from tidemark.wire.codec import encode, encoder_for
from tidemark.wire.frames import Ping, Refused
from tidemark.wire.versions import agree, agree_link


def test_the_newest_common_version_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PROTOCOL_OLDEST", 2)
    monkeypatch.setattr(versions, "PROTOCOL_NEWEST", 4)
    assert [agree(1, 2), agree(1, 3), agree(4, 9), agree(1, 9), agree(3, 3)] == [2, 3, 4, 4, 3]


def test_today_there_are_four_versions_for_clients_and_two_for_links() -> None:
    assert [agree(1, 1), agree(1, 2), agree(2, 3), agree(3, 5)] == [1, 2, 3, 4]
    assert [agree_link(1, 2), agree_link(2, 3), agree_link(2, 4)] == [2, 3, 3]
    with pytest.raises(VersionError, match="update the other side"):
        agree_link(1, 1)


@pytest.mark.parametrize(
    ("oldest", "newest", "advice"), [(5, 6, "update this side"), (0, 0, "update the other side")]
)
def test_without_a_common_version_the_older_side_is_named(oldest: int, newest: int, advice: str) -> None:
    with pytest.raises(VersionError, match=advice):
        agree(oldest, newest)


def test_versions_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(WireError, match="2 to 1"):
        agree(2, 1)


def test_a_client_of_version_1_gets_a_refusal_without_addresses() -> None:
    refused = Refused("connect", "", "draining", "go", ("other:1",))
    assert encoder_for(2)(refused) == encode(refused)
    assert encoder_for(1)(refused) == encode(replace(refused, addresses=()))
    assert encoder_for(1)(Ping(5)) == encode(Ping(5))
