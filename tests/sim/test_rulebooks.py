"""The rules of simulated worlds, as the oracle reads them and as brokers do."""

from __future__ import annotations

from random import Random

import pytest

from tidemark.access.document import AccessDocument
from tidemark.access.rights import Rights
from tidemark.message.batches.hidden_fields import HiddenFields
from tidemark.sim.judging.ground_truth import GroundTruth, ViolationError
from tidemark.sim.judging.publishing_rates import PublishingRates
from tidemark.sim.judging.shown_fields import ShownFields, named_in, schema_without
from tidemark.sim.swarm.rulebooks import READERS, some_rulebook

TOPICS = ("t.x", "t.y", "t.z")


def test_the_oracle_and_the_rights_of_brokers_agree_on_what_a_document_shows() -> None:
    chance = Random(1)
    truth = GroundTruth(schema_without())
    keys = [f"e{number}" for number in range(30)]
    for key in keys:
        numbers = {"n": chance.randrange(100), "secret": chance.randrange(100)}
        event = {"key": key, "kind": chance.choice("abcd"), **numbers}
        truth.add(chance.choice(TOPICS), event, 0)
    shown = hidden = 0
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
                rights = None if principal is None else Rights(document, principal)
                names = set() if rights is None else set(dict(rights.hidden(truth[key].topic)).values())
                assert rulebook.hides(user, key, truth) == {name for each in names for name in each}
                hidden += bool(names)
    assert 0 < hidden < 8 * 6 * len(keys)
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


def test_the_oracle_knows_which_fields_a_selector_names() -> None:
    assert named_in("n = 7 OR kind = 'n secret'") == {"n", "kind"}
    assert named_in("kind IN ('secret') AND key = 'n'") == {"kind"}
    assert named_in("") == frozenset()


def test_the_oracle_knows_every_schema_in_which_an_event_may_be_shown() -> None:
    whole, event = schema_without(), {"key": "k", "kind": "a", "n": 1, "secret": 2}
    fields = ShownFields()
    for names in ((), ("secret",), ("n", "secret"), ("kind",), ("kind", "n", "secret")):
        left = HiddenFields(whole, names).schema
        assert fields.lacking(left.fingerprint) == set(names)
        message = left.encode({name: value for name, value in event.items() if name not in names})
        assert fields.is_of(event, left.fingerprint, message)
        assert not fields.is_of({**event, "key": "other"}, left.fingerprint, message)


def test_a_rate_may_be_overdrawn_once_and_is_paid_back() -> None:
    rates, quota = PublishingRates(), {"publish_events": 10}
    rates.begin("b0")
    rates.take("b0", "pub0", 0, (14, 0), quota)
    rates.take("b0", "pub0", 400_000, (1, 0), quota)
    with pytest.raises(ViolationError, match="faster than its quota"):
        rates.take("b0", "pub0", 490_000, (1, 0), quota)
    rates.begin("b0")
    rates.take("b0", "pub0", 490_000, (100, 0), {})
