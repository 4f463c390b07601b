"""Which version two sides speak."""

from __future__ import annotations

import pytest

from tidemark.errors import VersionError, WireError
from tidemark.wire import versions
from tidemark.wire.versions import agree, agree_link


def test_the_newest_common_version_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PROTOCOL_OLDEST", 2)
    monkeypatch.setattr(versions, "PROTOCOL_NEWEST", 4)
    assert [agree(1, 2), agree(1, 3), agree(4, 9), agree(1, 9), agree(3, 3)] == [2, 3, 4, 4, 3]


def test_today_there_is_one_version_for_clients_and_one_for_links() -> None:
    assert agree(1, 1) == 1
    assert agree_link(1, 3) == 2
    with pytest.raises(VersionError, match="update the other side"):
        agree_link(1, 1)


@pytest.mark.parametrize(
    ("oldest", "newest", "advice"), [(2, 3, "update this side"), (0, 0, "update the other side")]
)
def test_without_a_common_version_the_older_side_is_named(oldest: int, newest: int, advice: str) -> None:
    with pytest.raises(VersionError, match=advice):
        agree(oldest, newest)


def test_versions_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(WireError, match="2 to 1"):
        agree(2, 1)
