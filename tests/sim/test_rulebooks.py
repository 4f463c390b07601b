"""The rules of simulated worlds, as the oracle reads them and as brokers do."""

from __future__ import annotations

from random import Random

from tidemark.access.document import AccessDocument
from tidemark.access.rights import Rights
from tidemark.message.schema import Schema
from tidemark.sim.judging.ground_truth import GroundTruth
from tidemark.sim.swarm.rulebooks import READERS, some_rulebook

TOPICS = ("t.x", "t.y", "t.z")


def test_the_oracle_and_the_rights_of_brokers_agree_on_what_a_document_shows() -> None:
    chance = Random(1)
    truth = GroundTruth(Schema.parse("[key: string, kind: string, n: int]"))
    keys = [f"e{number}" for number in range(30)]
    for key in keys:
        event = {"key": key, "kind": chance.choice("abcd"), "n": chance.randrange(100)}
        truth.add(chance.choice(TOPICS), event, 0)
    shown = 0
    for _ in range(8):
        rulebook = some_rulebook(chance)
        document = AccessDocument.parse(rulebook.text())
        for user in READERS[:6]:
            principal = document.principal(user)
            assert (principal is None) == (user not in rulebook.readers)
            seen = "FALSE" if principal is None else Rights(document, principal).seen(">")
            for key in keys:
                expected = rulebook.shows(user, key, truth)
                assert truth.matches(">", seen, key) == expected, (rulebook.text(), user, truth[key])
                shown += expected
    assert 0 < shown < 8 * 6 * len(keys)


def test_of_two_documents_the_one_of_the_higher_version_holds_and_then_that_of_the_greater_digest() -> None:
    chance = Random(2)
    first, second = (some_rulebook(chance).text() for _ in range(2))
    older, newer = AccessDocument.parse(first, 1), AccessDocument.parse(second, 2)
    assert newer.supersedes(older)
    assert not older.supersedes(newer)
    assert not newer.supersedes(newer)
    rival = AccessDocument.parse(first, 2)
    assert rival.supersedes(newer) == (rival.digest > newer.digest)
    assert rival.supersedes(newer) != newer.supersedes(rival)
