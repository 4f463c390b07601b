"""A new access document is held against the topics that the broker knows, before it is in force."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.security.secured import client_of, document, secured
from tests.node.speech import Stage, play
from tidemark.client.client import Client
from tidemark.errors import RefusedError, StaleAccessError
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS

WRONG = '\n[roles.guest]\nsubscribe = ["t.x"]\nread."t.x" = "m = :user"\n'
TEXT = "does not fit the topic t.x, which is closed by it: there is no field `m`"


async def propose(client: Client, text: str, *, is_forced: bool = False) -> int:
    """Propose a document in place of the one that is in force; return its version."""
    found = await client.ask(ACCESS)
    taken = await client.ask(PROPOSE_ACCESS, text=text, base=found.version, force=is_forced)
    return taken.version


def test_a_document_with_a_rule_that_fits_no_event_of_a_known_topic_is_refused(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        text = document()
        node = await secured(stage, tmp_path, text=text)
        async with client_of(node, "paula") as writer, client_of(node, "ops") as ops:
            await writer.create_topic("t.x", "[n: int]")
            with pytest.raises(RefusedError, match=r'roles\.guest\.read\."t\.x"') as refused:
                await propose(ops, text + WRONG)
            assert TEXT in str(refused.value)
            assert refused.value.code == "selector"
            assert (await ops.ask(ACCESS)).version == 0
            assert await propose(ops, text + WRONG, is_forced=True) == 1

    play(story)


def test_a_rule_that_is_in_force_already_does_not_stand_in_the_way_of_other_changes(tmp_path: Path) -> None:
    """Nobody has to mend a rule of somebody else's first to lock a user out."""

    async def story(stage: Stage) -> None:
        text = document()
        node = await secured(stage, tmp_path, text=text)
        async with client_of(node, "paula") as writer, client_of(node, "ops") as ops:
            assert await propose(ops, text + WRONG) == 1, "no topic is known that the rule is for"
            await writer.create_topic("t.x", "[n: int]")
            assert await propose(ops, text + WRONG + '\n[users.guest]\nroles = ["guest"]\n') == 2
            with pytest.raises(RefusedError, match=r"roles\.guest\.read"):
                await propose(ops, text + WRONG.replace("m =", "k ="))

    play(story)


def test_a_topic_that_was_removed_is_held_against_no_rule(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        text = document()
        node = await secured(stage, tmp_path, text=text)
        async with client_of(node, "paula") as writer, client_of(node, "ops") as ops:
            await writer.create_topic("t.x", "[n: int]")
            await writer.remove_topic("t.x")
            assert await propose(ops, text + WRONG) == 1

    play(story)


def test_of_two_documents_that_are_proposed_at_once_one_is_told_that_it_came_too_late(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        assert node.access is not None
        texts = [document() + f"\n[roles.role{number}]\nmonitor = true\n" for number in range(4)]
        found = await asyncio.gather(
            *(node.access.propose(text, 0) for text in texts), return_exceptions=True
        )
        late = [each for each in found if isinstance(each, StaleAccessError)]
        assert len(late) == 3, found
        (taken,) = {text for text, each in zip(texts, found, strict=True) if each not in late}
        assert node.access.document.text == taken

    play(story)


def test_a_document_that_is_proposed_twice_at_once_holds_for_both(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await secured(stage, tmp_path)
        assert node.access is not None
        text = document() + "\n[roles.role]\nmonitor = true\n"
        found = await asyncio.gather(*(node.access.propose(text, 0) for _ in range(3)))
        assert {each.text for each in found} == {text}

    play(story)
