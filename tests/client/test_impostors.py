"""Somebody who listens where a broker should: what a client tells nobody who has not proved to be it."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.fake_broker import FakeBroker
from tidemark.client.client import connect
from tidemark.client.connecting.addresses import is_loopback
from tidemark.client.connecting.credentials import BEARER, SCRAM, Credentials
from tidemark.errors import RefusedError
from tidemark.wire.security.frames import Login, Proof


def test_a_broker_that_asks_for_no_password_gets_no_client_that_was_given_one() -> None:
    async def story() -> None:
        async with FakeBroker() as impostor:
            with pytest.raises(RefusedError, match="has not proved that it knows this user"):
                await connect(impostor.url, user="alice", password="secret")
            client = await connect(impostor.url)
            await client.close()

    asyncio.run(story())


def test_where_a_certificate_proves_the_broker_it_need_not_know_the_password() -> None:
    assert Credentials.of({"user": "a", "password": "b"}, is_tls=False).is_login_due
    assert not Credentials.of({"user": "a", "password": "b"}, is_tls=True).is_login_due
    assert not Credentials.of({"token": "t"}, is_tls=False).is_login_due


def test_a_bearer_token_is_not_sent_where_others_can_read_it() -> None:
    asked = Login((SCRAM, BEARER))
    held = Credentials(token="a.b.c")
    assert held.dialog().answer(asked) == Proof(BEARER, "a.b.c")
    with pytest.raises(RefusedError, match="tidemark\\+tls://") as caught:
        held.dialog().answer(asked, is_overheard=True)
    assert "a.b.c" not in str(caught.value)


def test_addresses_of_this_machine_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("10.0.0.1", "::", "fe80::1%eth0", "localhost", "")))
