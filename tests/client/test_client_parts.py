"""Small parts of the client: URLs, back-off, what importing the package costs, the errors' texts."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

import tidemark
from tidemark.client.connecting.addresses import SocketAddress, parse_url
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.topics import ClientTopics
from tidemark.errors import ConfigError
from tidemark.message import BatchBuilder, Schema, Shape
from tidemark.wire.frames import Describe, Topic


def test_a_url_names_one_broker_or_several() -> None:
    assert parse_url("tidemark://127.0.0.1:7676") == (SocketAddress("127.0.0.1", 7676),)
    assert parse_url("tidemark://a,b:1,[::1]:2,a") == (
        SocketAddress("a", 7676),
        SocketAddress("b", 1),
        SocketAddress("::1", 2),
    )
    assert str(parse_url("tidemark://[::1]:2/")[0]) == "[::1]:2"
    assert parse_url("127.0.0.1:7676,b:1") == parse_url("tidemark://127.0.0.1:7676,b:1")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:0", "http://a", "tidemark://", "tidemark://a:0", "tidemark://a:x"],
)
def test_a_url_that_names_no_broker_says_how_to_write_one(url: str) -> None:
    with pytest.raises(ConfigError, match="tidemark://"):
        parse_url(url)


@pytest.mark.parametrize("url", ["tidemark://{}@a:1", "tidemark+tls://a:1,{}@b", "{}@a:1", "http://{}@a"])
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="no user and no password in it") as caught:
        parse_url(url.format("alice:hunter2"))
    assert "hunter2" not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_delays_double_up_to_a_bound_and_start_over_after_success() -> None:
    backoff = Backoff(1.0, 5.0, chance=lambda: 1.0)
    assert [backoff.delay() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.delay(3.0) == 3.0
    assert backoff.delay() == 5.0
    backoff.reset()
    assert backoff.delay(3.0) == 1.0
    assert Backoff(1.0, chance=lambda: 0.0).delay() == 0.5


def test_delays_differ_and_leave_the_applications_random_numbers_alone() -> None:
    before = random.getstate()
    assert len({Backoff(1.0).delay() for _ in range(20)}) > 1
    assert random.getstate() == before


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = (
        "import sys, tidemark; print(sorted(n for n in sys.modules if n.startswith(('tidemark.', 'numpy'))))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_every_exported_name_is_there() -> None:
    assert all(getattr(tidemark, name) is not None for name in tidemark.__all__)
    assert set(tidemark.__all__) <= set(dir(tidemark))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = tidemark.nothing_like_it  # type: ignore[attr-defined]


def test_a_publisher_of_an_open_topic_asks_for_its_own_shape_and_a_reader_for_what_it_lacks() -> None:
    async def story() -> None:
        said: list[Describe | Topic] = []
        topics = ClientTopics(said.append)
        shapes = [Schema.of({f"field_{number}": 1, "n": 1}) for number in range(3)]

        async def answered(asking: Coroutine[Any, Any, None], *texts: str) -> None:
            task = asyncio.ensure_future(asking)
            await asyncio.sleep(0)
            topics.answered(Topic("t", True, texts))
            await task

        value = {"field_0": 5, "n": 1}
        assert topics.encode("t", value) is None
        await answered(topics.prepare("t", value), shapes[0].text)
        assert said == [Describe("t", (shapes[0].fingerprint,))]
        assert topics.encode("t", value) is not None
        builder = BatchBuilder()
        builder.add(Shape("t", shapes[1].fingerprint), shapes[1].encode({"field_1": 1, "n": 2}))
        batch = builder.build()
        await answered(topics.fetch(batch), *(each.text for each in shapes[:2]))
        assert said[1:] == [Describe("t")]  # all of them, the first time
        assert topics.accessor(batch.shapes[0], "field_0")(batch.message(0)) is None
        with pytest.raises(KeyError):
            topics.accessor(batch.shapes[0], "field_2")
        builder.add(Shape("t", shapes[2].fingerprint), shapes[2].encode({"field_2": 1, "n": 2}))
        await answered(topics.fetch(builder.build()), shapes[2].text)
        assert said[2:] == [Describe("t", (shapes[2].fingerprint,))]
        assert topics.accessor(batch.shapes[0], "field_2")(batch.message(0)) is None

    asyncio.run(story())
