"""What the pages are told while brokers are slow, gone and back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tidemark.console.callers import ANYBODY, Connections
from tidemark.console.watch import OverlayView, Watch
from tidemark.errors import NotConnectedError


class SlowWatch(Watch):
    """A watch whose brokers answer, or are found to be gone, when the test says so."""

    def __init__(self) -> None:
        super().__init__(cast(Connections, None), ANYBODY, "tidemark://nowhere")
        self.asked = 0
        self.answers: asyncio.Queue[OverlayView | NotConnectedError] = asyncio.Queue()

    async def _asked(self, before: OverlayView | None) -> OverlayView:  # noqa: ARG002
        self.asked += 1
        answer = await self.answers.get()
        if isinstance(answer, NotConnectedError):
            raise answer
        return answer

    def _keep(self, view: OverlayView) -> None:
        """These views have no numbers."""


def view(number: int) -> OverlayView:
    nothing = cast(Any, None)
    return OverlayView(float(number), nothing, {}, nothing)


def test_one_request_waits_for_a_broker_that_is_gone_and_all_hear_of_it() -> None:
    async def story() -> None:
        watch = SlowWatch()
        asking = [asyncio.ensure_future(watch.view()) for _ in range(50)]
        await asyncio.sleep(0)
        watch.answers.put_nowait(NotConnectedError("there is no broker"))
        for each in asking:
            with pytest.raises(NotConnectedError):
                await each
        assert watch.asked == 1

    asyncio.run(story())


def test_pages_show_what_there_is_while_a_broker_is_waited_for() -> None:
    async def story() -> None:
        watch = SlowWatch()
        watch.answers.put_nowait(view(1))
        assert (await watch.view()).at == 1.0
        watch._viewed -= 3.0
        slow = asyncio.ensure_future(watch.view())
        await asyncio.sleep(0)
        assert (await watch.view()).at == 1.0
        watch.answers.put_nowait(view(2))
        assert (await slow).at == 2.0
        assert (await watch.view()).at == 2.0
        assert watch.asked == 2

    asyncio.run(story())


def test_after_a_change_nobody_is_shown_what_was_before() -> None:
    async def story() -> None:
        watch = SlowWatch()
        watch.answers.put_nowait(view(1))
        await watch.view()
        watch.forget_subscriptions()
        both = [asyncio.ensure_future(watch.view()) for _ in range(2)]
        await asyncio.sleep(0)
        watch.answers.put_nowait(view(2))
        assert [each.at for each in await asyncio.gather(*both)] == [2.0, 2.0]

    asyncio.run(story())
