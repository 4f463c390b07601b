"""How many questions a connection, and an address, may ask in a second."""

from __future__ import annotations

from tidemark.node.turns.rates import QuestionRates


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(rates: QuestionRates, origin: str, times: int) -> list[str]:
    """Ask so many questions over one new connection; returns the answers that are refusals."""
    questions = rates.of(origin)
    kept.append(questions)
    return [reason for _ in range(times) if (reason := questions.refusal())]


#: connections that stay open
kept: list[object] = []


def test_a_connection_may_ask_so_many_questions_in_a_second() -> None:
    clock = Clock()
    questions = QuestionRates(2, 10, clock).of("")
    assert [bool(questions.refusal()) for _ in range(3)] == [False, False, True]
    clock.now += 1.0
    assert not questions.refusal()


def test_an_address_may_ask_a_few_times_as_many_with_all_its_connections() -> None:
    rates = QuestionRates(2, 3, Clock())
    assert [asked(rates, "10.0.0.1", 2) for _ in range(3)] == [[], [], []]
    (reason,) = asked(rates, "10.0.0.1", 1)
    assert "an address may ask 6 questions a second" in reason
    assert asked(rates, "10.0.0.2", 2) == []


def test_connections_of_this_machine_count_each_by_itself() -> None:
    rates = QuestionRates(2, 1, Clock())
    assert [asked(rates, "", 2) for _ in range(3)] == [[], [], []]
