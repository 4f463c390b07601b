"""For tests that block, or have other processes as clients: a broker that runs beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.client.fake_broker import FakeBroker
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = FakeBroker()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(PATIENCE_SECONDS)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(PATIENCE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
