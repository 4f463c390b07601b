"""By which names the command line connects."""

from __future__ import annotations

from tidemark.admin.connection import client_name
from tidemark.wire.limits import NAME_BYTES_MAX


def test_a_durable_subscriber_comes_under_the_same_name_each_time_and_others_under_new_ones() -> None:
    assert client_name("audit") == client_name("audit") == "cli-audit"
    assert client_name() != client_name()
    for durable in ("a" * 400, "ä" * 126):
        assert len(client_name(durable).encode()) <= NAME_BYTES_MAX
