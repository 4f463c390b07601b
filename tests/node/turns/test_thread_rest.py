"""How a thread rests within long work: often, and for as long as it has worked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.batches.checking import check_in_steps
from tidemark.message.codec.rest import REST_EVERY
from tidemark.message.registry import ParseWork, Registry
from tidemark.message.schema import Schema
from tidemark.node.turns.thread_rest import REST_AFTER_SECONDS, ThreadRest


class Thread:
    """A thread whose clock a test moves, and that notes its pauses."""

    def __init__(self) -> None:
        self.now = 10.0
        self.pauses: list[float] = []

    def rest(self) -> ThreadRest:
        return ThreadRest(lambda worked: 2 * worked, lambda: self.now, self.pauses.append)


def counted() -> tuple[list[int], Callable[[], None]]:
    """A number of calls, and a rest that counts them."""
    calls = [0]

    def rest() -> None:
        calls[0] += 1

    return calls, rest


def test_a_thread_rests_when_it_has_worked_for_long_enough_and_for_what_it_has_worked() -> None:
    thread = Thread()
    rest = thread.rest()
    thread.now += 0.9 * REST_AFTER_SECONDS
    rest()
    assert thread.pauses == []
    thread.now += 0.1 * REST_AFTER_SECONDS + 1e-9
    rest()
    rest()
    assert thread.pauses == [pytest.approx(2 * REST_AFTER_SECONDS, rel=1e-3)]
    thread.now += 0.25 * REST_AFTER_SECONDS
    rest.end()
    assert sum(thread.pauses) == pytest.approx(2 * 1.25 * REST_AFTER_SECONDS, rel=1e-3)
    assert rest.took == pytest.approx(1.25 * REST_AFTER_SECONDS, rel=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "[" + ", ".join(f"field_{at}: int?" for at in range(960)) + "]",
        "[" + ", ".join(f"field_{at}: {{a: int | b: [c: string, d: int?]}}" for at in range(480)) + "]",
        "[a: s0]; " + "; ".join(f"s{at}: [x: int, y: int]" for at in range(480)),
    ],
)
def test_work_on_a_large_schema_offers_a_rest_every_few_fields_and_comes_to_the_same(text: str) -> None:
    calls, rest = counted()
    work = ParseWork(text, to_read=True)
    work(rest)
    plain = Schema.parse(text)
    assert work.found == plain
    assert isinstance(work.found, Schema)
    assert repr(work.found.flat.root.type) == repr(plain.flat.root.type)
    parts = plain.flat.size
    assert calls[0] >= parts // REST_EVERY


def test_work_on_a_large_batch_offers_a_rest_every_few_messages() -> None:
    registry = Registry()
    schema = registry.add(Schema.parse("[n: int, many: *(string)*]"))
    builder = BatchBuilder()
    for _ in range(20 * REST_EVERY):
        builder.add(Shape("t", schema.fingerprint), schema.encode({"n": 1, "many": ["x"]}))
    batch = builder.build()
    calls, rest = counted()
    for work in check_in_steps(batch, registry.schemas):
        work(rest)
    assert calls[0] >= 19
    assert batch.verdict is not None
    assert batch.verdict.problem is None
