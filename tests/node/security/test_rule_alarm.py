"""A topic that comes later and that a rule does not fit is closed by it, and told in the broker's health."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.security.secured import client_of, secured
from tests.node.speech import Stage, play
from tidemark.errors import RefusedError


def test_a_topic_that_a_rule_does_not_fit_is_an_alarm_and_stays_closed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        node._look_at_alarms()
        assert not list(node.alarms)
        async with client_of(node, "paula") as writer, client_of(node, "alice") as reader:
            await writer.create_topic("t.odd", "[m: int]")
            node._look_at_alarms()
            (alarm,) = node.alarms
            assert alarm.startswith("1 times a rule of access fits no event of a topic")
            assert "t.odd" not in alarm
            with pytest.raises(RefusedError, match="may see nothing"):
                await reader.subscribe("t.odd")

    play(story)
