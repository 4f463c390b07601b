"""The overview says of each alarm what to do about it."""

from __future__ import annotations

import pytest

from tidemark.console.pages.overview import advice_for
from tidemark.node.node import NO_PIPELINE, RULES_MISFIT


@pytest.mark.parametrize(
    ("alarm", "advice"),
    [
        ("there is no link to west", "topology show"),
        ("west does not answer: timed out", "at its log"),
        (RULES_MISFIT.format(3), "Change those rules"),
        (NO_PIPELINE, "the pipeline page"),
        (
            "the pubend main holds events that nobody archives, since nothing goes before the archive has it",
            "the pipeline page",
        ),
        ("no space on the disk; history is not cached on disk until the next start", "Nothing is lost"),
        ("the disk is full; publishing is refused until there is room", "Free space"),
        ("no space left; waiting for space", "Free space"),
        ("record 5 of main is lost", "gaps"),
        ("the file is damaged", "gaps"),
    ],
)
def test_every_alarm_has_advice_of_its_own(alarm: str, advice: str) -> None:
    assert advice in advice_for(alarm)
