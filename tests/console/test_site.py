"""What pages show of values that others have written."""

from __future__ import annotations

import pytest

from tidemark.console.pages.site import _show_tick


@pytest.mark.parametrize("tick", [1 << 62, (1 << 63) - 1, 253_402_300_800_000_000])
def test_a_tick_beyond_all_calendars_is_shown_as_it_is(tick: int) -> None:
    assert _show_tick(tick) == str(tick)


def test_a_tick_is_shown_as_the_time_that_it_is() -> None:
    assert _show_tick(1_794_891_538_537_821) == "2026-11-17 04:58:58.537821"
    assert _show_tick(None) == _show_tick(0) == "-"
