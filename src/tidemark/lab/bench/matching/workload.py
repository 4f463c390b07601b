"""Events and selectors to measure the matcher with: an equality, a range and a prefix on three fields.

60% of the selectors are `symbol = 'S0042' AND price > 12.5 AND account LIKE 'ab%'`, the others
`price BETWEEN 12.5 AND 22.5 AND account LIKE 'a%'`. At 10,000 of them an event matches about 10. Everything
comes from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from string import ascii_letters
from typing import Any

from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import And, Between, Compare, FieldRef, Like, Literal
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema

SCHEMA = Schema.parse("[symbol: string, price: double, account: string, qty: int, payload: string]")
READER = EventReader(SCHEMA, {SCHEMA.fingerprint: SCHEMA})

SYMBOLS = tuple(f"S{number:04}" for number in range(1_000))
PRICE_MAX = 1_000.0
ACCOUNT_LETTERS = "abcd"
PAYLOAD_BYTES = 200
#: The number of selectors at which an event matches about 10, with ranges of this width.
MATCHING_TEN = 10_000
RANGE_WIDTH = 10.0

_SYMBOL, _PRICE, _ACCOUNT = FieldRef(("symbol",)), FieldRef(("price",)), FieldRef(("account",))
_LIKE = {
    prefix: Like(_ACCOUNT, prefix + "%")
    for first in ACCOUNT_LETTERS
    for prefix in (first, *(first + second for second in ACCOUNT_LETTERS))
}
_IS = {symbol: Compare("=", _SYMBOL, Literal(symbol)) for symbol in SYMBOLS}

Event = dict[str, Any]


def event(random: Random) -> Event:
    """One random event."""
    return {
        "symbol": random.choice(SYMBOLS),
        "price": round(random.random() * PRICE_MAX, 4),
        "account": "".join(random.choices(ACCOUNT_LETTERS, k=2)) + f"{random.randrange(10**6):06}",
        "qty": random.randrange(100),
        "payload": "".join(random.choices(ascii_letters, k=PAYLOAD_BYTES)),
    }


def holds(selector: Selector, of: Event) -> bool:
    """Whether the event matches, by the reference evaluator."""
    return evaluate(selector.tree, lambda path: of[path[0]]) is True


def batch_of(events: Sequence[Event]) -> bytes:
    """Returns the bytes of a batch, as they come from a log or a socket."""
    builder = BatchBuilder()
    for each in events:
        builder.add(Shape("trades", SCHEMA.fingerprint), SCHEMA.encode(each))
    return bytes(builder.build().data)


def selectors(count: int, random: Random, *, narrow: float = 1.0) -> Iterator[Selector]:
    """Yields `count` selectors, with ranges that are `narrow` times narrower than usual.

    The trees are built here, not parsed: parsing a million texts would take longer than the measurement.
    """
    for _ in range(count):
        yield _of_symbol(random, narrow) if random.random() < 0.6 else _of_range(random, narrow)


def _of_symbol(random: Random, narrow: float) -> Selector:
    symbol, prefix = random.choice(SYMBOLS), "".join(random.choices(ACCOUNT_LETTERS, k=2))
    low = _number(PRICE_MAX * (1 - random.random() / max(1.0, narrow)))
    tree = And((_IS[symbol], Compare(">", _PRICE, low), _LIKE[prefix]))
    return Selector(f"symbol = '{symbol}' AND price > {low.text} AND account LIKE '{prefix}%'", tree)


def _of_range(random: Random, narrow: float) -> Selector:
    prefix, width = random.choice(ACCOUNT_LETTERS), min(RANGE_WIDTH / narrow, PRICE_MAX)
    start = random.random() * (PRICE_MAX - width)
    low, high = _number(start), _number(start + width)
    text = f"price BETWEEN {low.text} AND {high.text} AND account LIKE '{prefix}%'"
    return Selector(text, And((Between(_PRICE, low, high), _LIKE[prefix])))


def _number(value: float) -> Literal:
    rounded = round(value, 4)
    return Literal(rounded, repr(rounded))
