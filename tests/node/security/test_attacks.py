"""A user that is logged in does to others, and to the broker, only what its roles grant."""

from __future__ import annotations

import json
from pathlib import Path

from tests.node.security.secured import USERS, document, logged_in, secured
from tests.node.speech import SCHEMA, Stage, events, play
from tests.waiting import until
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import RIGHTS, SUBSCRIPTION
from tidemark.wire.frames import (
    Ack,
    Acked,
    Answer,
    Ask,
    Deliver,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
)

#: What whoever asks has: everything but a right to ask questions of administrators.
ALL_TOPICS = """
[roles.everything]
subscribe = [">"]
publish = [">"]
declare = [">"]
durable = ["*"]
publisher = ["*"]
"""
#: Arguments with which a question would change something, were it heard.
ARGUMENTS = {
    "name": "bob.s",
    "where": "FALSE",
    "to": "now",
    "force": True,
    "host": "elsewhere",
    "token": "tm1.",
    "text": "",
    "base": 0,
    "snapshot": "s",
    "file": "f",
    "offset": 0,
    "bytes": 1,
}


def test_nobody_acknowledges_for_the_subscription_of_somebody_else(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        text = document().replace("[roles.writer]", '[roles.writer]\npublisher = ["p"]')
        node = await secured(stage, tmp_path, text=text)
        paula, alice, bob = [await logged_in(stage, node, name) for name in ("paula", "alice", "bob")]
        await paula.say(Topic("t.x", False, (SCHEMA.text,)))
        await paula.hear(Topic)
        await alice.say(Subscribe("alice.s", "t.x", "", True, 1 << 20))
        await alice.hear(Subscribed)
        await until(lambda: node.runtime.broker.known_from("alice.s", "main") is not None)

        async def acknowledged() -> int:
            await alice.say(Ask(5, SUBSCRIPTION.what, json.dumps({"name": "alice.s"})))
            return int(json.loads((await alice.hear(Answer)).payload)["pubends"]["main"]["acknowledged"])

        await paula.say(Publish("main", "p", 1, events(1, 1)))
        tick = (await paula.hear(Published)).tick
        told = await alice.hear(Deliver)
        while told.batch is None:
            told = await alice.hear(Deliver)
        before = await acknowledged()
        token = CheckpointToken({"main": told.upto})
        assert before < told.upto
        await bob.say(Ack((("alice.s", token),), 9))
        refused = await bob.hear(Refused)
        assert (refused.what, refused.name, refused.code) == ("ack", "9", "unknown")
        # Without a ticket nobody is told, and nothing is kept either.
        await bob.say(Ack((("alice.s", token),)), Ping(1))
        await bob.hear(Pong)
        assert await acknowledged() == before
        await alice.say(Ack((("alice.s", token),), 3))
        await alice.hear(Acked)
        assert await acknowledged() == told.upto >= tick

    play(story)


def test_every_question_that_is_not_for_everyone_is_denied_to_who_has_no_right_to_it(tmp_path: Path) -> None:
    """New questions are covered as soon as they have a right."""

    async def story(stage: Stage) -> None:
        text = document({**USERS, "alice": 'roles = ["everything"]'})
        node = await secured(stage, tmp_path, text=text + ALL_TOPICS)
        bob = await logged_in(stage, node, "bob")
        await bob.say(Subscribe("bob.s", "t.x", "n > 1", True, 1 << 20))
        await bob.hear(Subscribed)
        assert node.access is not None
        before = node.topology.version, node.access.document.version
        alice = await logged_in(stage, node, "alice")
        asked = [what for what, right in RIGHTS.items() if right != "everyone"]
        assert {"propose", "propose_access", "snapshot", "config", "access", "remove"} <= {*asked}
        for ticket, what in enumerate(asked, 1):
            # Other arguments than a question has do not count.
            await alice.say(Ask(ticket, what, json.dumps(ARGUMENTS)))
            refused = await alice.hear(Refused)
            assert (refused.what, refused.name, refused.code) == ("ask", str(ticket), "denied"), what
            assert "alice" in refused.reason
        assert not any(isinstance(each, Answer) for each in alice.unread)
        assert (node.topology.version, node.access.document.version) == before
        assert node.runtime.broker.hosts("bob.s")
        lines = map(json.loads, (tmp_path / "data" / "audit.log").read_text().splitlines())
        assert [each["what"] for each in lines if each.get("who") == "alice"][1:] == ["denied"] * len(asked)

    play(story)
