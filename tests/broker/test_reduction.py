"""Reduction: few lines that cover all that is wanted, whatever comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.broker.streams.reduction import LINES_MAX, Reduction
from tidemark.lab.bench.steps.counting import CallCounter
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.topic_selector import TopicSelector

PATTERNS = ("a", "a.b", "a.>", "a.*", "a.b.c", ">")
TOPICS = ("a", "a.b", "a.c", "a.b.c", "d")
numbers = st.integers(0, 5)
clauses = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(("<", ">", "=", "<>", ">=")), numbers),
    st.builds("kind = '{}'".format, st.sampled_from("xyz")),
    st.builds("kind LIKE '{}%'".format, st.sampled_from("xyz")),
    st.builds("n BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("kind IN ('{}', '{}')".format, st.sampled_from("xyz"), st.sampled_from("xyz")),
    st.sampled_from(("kind IS NULL", "n IS NOT NULL", "n + 1 > m", "NOT (n > m)", "")),
)
selectors = st.one_of(
    clauses,
    st.builds("({}) AND ({})".format, clauses.filter(bool), clauses.filter(bool)),
    st.builds("({}) OR ({})".format, clauses.filter(bool), clauses.filter(bool)),
)
lines = st.builds(TopicSelector, st.sampled_from(PATTERNS), selectors)
events = st.fixed_dictionaries(
    {},
    optional={"n": numbers, "m": numbers, "kind": st.sampled_from(("x", "y", "z", "xy"))},
)


def wants(line: TopicSelector, topic: str, event: dict[str, Any]) -> bool:
    if not TopicPattern.parse(line.pattern).matches(topic):
        return False
    return evaluate(parse(line.selector), lambda path: event.get(path[0])) is True


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.sets(lines, max_size=50), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(TOPICS), events), min_size=5, max_size=20),
)
def test_what_is_told_covers_all_that_is_wanted_after_every_change(
    changes: list[set[TopicSelector]], happening: list[tuple[str, dict[str, Any]]]
) -> None:
    reduction = Reduction()
    for wanted in changes:
        told = reduction.of(wanted)
        assert len(told) <= LINES_MAX
        for topic, event in happening:
            if any(wants(line, topic, event) for line in wanted):
                assert any(wants(line, topic, event) for line in told), (topic, event, told)


def test_what_another_line_covers_is_not_told() -> None:
    told = Reduction().of(
        [TopicSelector("a.>", "n > 1"), TopicSelector("a.b", "n > 2"), TopicSelector("a.b", "n = 7")]
    )
    assert told == (TopicSelector("a.>", "n > 1"),)


def test_the_same_lines_in_any_order_are_told_the_same() -> None:
    wanted = [TopicSelector("a", f"n = {n}") for n in range(20)] + [TopicSelector("a.b", "kind = 'x'")]
    assert Reduction().of(wanted) == Reduction().of(reversed(wanted))


def test_when_nothing_changes_nothing_else_is_told() -> None:
    reduction = Reduction()
    told = reduction.of([TopicSelector("a", "n > 1")])
    assert reduction.of([TopicSelector("a", "n > 1")]) == told


def test_nothing_wanted_is_nothing_told() -> None:
    reduction = Reduction()
    assert reduction.of([]) == ()
    reduction.of([TopicSelector("a", "n > 1")])
    assert reduction.of([]) == ()


def test_of_many_lines_a_change_adds_what_is_new_and_the_number_stays_bounded() -> None:
    reduction = Reduction()
    wanted: set[TopicSelector] = set()
    for n in range(300):
        wanted.add(TopicSelector("a", f"n = {n} AND m = {n % 7}"))
        if n % 100 == 0 or n == 299:
            told = reduction.of(wanted)
            assert len(told) <= LINES_MAX
            for k in range(0, n + 1, 13):
                event = {"n": k, "m": k % 7}
                assert any(wants(line, "a", event) for line in told)


def test_what_was_wanted_once_is_let_go_of_in_the_end() -> None:
    reduction = Reduction()
    many = {TopicSelector("a", f"n = {n} AND m = {n % 7}") for n in range(100)}
    reduction.of(many)
    few = [TopicSelector("b", "n = 1")]
    assert reduction.of(few) == (TopicSelector("b", "n = 1"),)


def test_a_selector_that_cannot_be_read_wants_the_whole_topic() -> None:
    assert Reduction().of([TopicSelector("a", "n REGEXP 'x'")]) == (TopicSelector("a", "TRUE"),)


def ranges(n: int) -> TopicSelector:
    return TopicSelector("t", f"n > {n} AND n < {n + 5} OR n = {-n}")


def of_many_conditions(n: int) -> TopicSelector:
    return TopicSelector("t", " OR ".join(f"n = {100 * n + k}" for k in range(45)))


def of_much_to_multiply(n: int) -> TopicSelector:
    return TopicSelector("t", " AND ".join(f"(n <> {7 * n + k} OR m > {n + k})" for k in range(20)))


def of_many_topics(n: int) -> TopicSelector:
    return TopicSelector(f"t{n % 10}.u{n}", "n = 1")


@pytest.mark.parametrize("line", [ranges, of_many_conditions, of_much_to_multiply, of_many_topics])
def test_a_change_takes_no_more_steps_however_much_is_wanted(line: Callable[[int], TopicSelector]) -> None:
    def steps(begin: int, end: int) -> int:
        """The calls that it takes to want one line after the other, up to a thousand lines at the most."""
        counter = CallCounter()

        def run() -> int:
            for n in range(begin, end):
                wanted.add(lines[n])
                assert len(reduction.of(wanted)) <= LINES_MAX
            return end - begin

        counts = counter.counts(counter.run(run), 1)
        return counts.python_calls + counts.c_calls

    reduction, wanted = Reduction(), set[TopicSelector]()
    lines = [line(n) for n in range(500)]
    wanted.update(lines[:30])
    few, more, many = steps(30, 32), steps(32, 260), steps(260, 500)
    # All of a few lines are compared with each other. What one of many takes is in its own text.
    assert few / 2 < 150_000
    assert max(more, many) / 230 < 12_000
    assert many < 3 * more


def test_where_there_are_too_many_lines_the_topics_with_the_most_are_told_as_a_whole() -> None:
    few = {TopicSelector("few", f"n = {n}") for n in range(5)}
    many = {TopicSelector("many", f"n = {n}") for n in range(LINES_MAX)}
    assert Reduction().of(few | many) == (
        *sorted(few, key=lambda line: line.selector),
        TopicSelector("many", "TRUE"),
    )
