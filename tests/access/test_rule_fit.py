"""Which rules fit which topics."""

from __future__ import annotations

import pytest

from tidemark.access.document import AccessDocument
from tidemark.access.rule_fit import rule_misfits
from tidemark.broker.access.rule_fits import RuleFits
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema

TOPICS = [
    ("trades.eu", False, ["[region: string, price: int]"]),
    ("trades.us", False, ["[price: int]", "[price: int, fee: int]"]),
    ("trades.odd", True, ["[other: int]"]),
    ("orders", False, ["[account: string]"]),
]


def misfits(line: str) -> list[tuple[str, str]]:
    document = AccessDocument.parse(f"[roles.r]\n{line}")
    return [(each.topic, each.reason) for each in rule_misfits(document, TOPICS)]


@pytest.mark.parametrize(
    ("line", "topics"),
    [
        ('read."trades.>" = "region = :claims.region"', ["trades.us"]),
        ('read."trades.>" = "price > :claims.most"', []),
        ('read."trades.>" = "price = \'x\'"', ["trades.eu", "trades.us"]),
        ('read."trades.>" = "_topic MATCHES \'trades.eu\' AND region = :user"', []),
        ('restrict."trades.{claims.where}" = "region = :user"', ["trades.us"]),
        ('write."orders" = "account = :user AND qty < :claims.most"', ["orders"]),
        ('read."none.>" = "whatever > 5"', []),
        ('hide."orders" = ["whatever"]', []),
    ],
)
def test_a_rule_that_is_true_for_no_event_of_a_topic_is_found(line: str, topics: list[str]) -> None:
    assert [topic for topic, _ in misfits(line)] == topics


def test_the_reason_names_what_is_missing() -> None:
    ((_, reason),) = misfits('read."trades.us" = "region = :claims.region"')
    assert "there is no field `region`" in reason


def test_a_topic_that_comes_later_is_counted_and_one_that_is_mended_no_longer() -> None:
    registry = Registry()
    fits = RuleFits(registry)
    document = AccessDocument.parse('[roles.r]\nread."trades.>" = "region = :claims.region"')
    assert fits.look(document) == 0
    registry.declare("trades.us", Schema.parse("[price: int]"))
    registry.declare("trades.eu", Schema.parse("[region: string]"))
    assert fits.look(document) == 1
    assert fits.look(document) == 1
    registry.declare("trades.us", Schema.parse("[price: int, region: string]"))
    assert fits.look(document) == 0
    assert fits.look(AccessDocument.parse('[roles.r]\nread."trades.>" = "x > 1"')) == 2
    assert fits.look(None) == 0


def test_many_topics_are_looked_at_in_several_goes() -> None:
    registry = Registry()
    for number in range(450):
        registry.declare(f"trades.t{number}", Schema.parse("[price: int]"))
    fits = RuleFits(registry)
    document = AccessDocument.parse('[roles.r]\nread."trades.>" = "region = :claims.region"')
    assert [fits.look(document) for _ in range(4)] == [200, 400, 450, 450]
