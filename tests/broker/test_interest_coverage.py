"""InterestCoverage: which silence of a window may be told to whom."""

from __future__ import annotations

from tidemark.broker.streams.interest_coverage import InterestCoverage


def test_silence_accounts_for_a_version_from_the_first_knowledge_that_carries_it() -> None:
    each = InterestCoverage()
    assert each.learnt(5, 10, 10) == 5
    assert each.learnt(5, 20, 20) == 5
    assert each.learnt(7, 30, 30) == 7
    assert each.covered([(10, 50)], 5) == [(10, 50)]
    assert each.covered([(10, 50)], 6) == [(30, 50)]
    assert each.covered([(10, 50)], 8) == []


def test_what_was_known_before_is_not_accounted_for_by_what_comes_later() -> None:
    each = InterestCoverage()
    each.learnt(5, 10, 10)
    # A new neighbour is behind the old one, by whom (10, 100] is known already.
    assert each.learnt(7, 90, 100) == 5
    assert each.learnt(7, 95, 100) == 5
    assert each.learnt(7, 100, 105) == 7
    assert each.covered([(10, 120)], 7) == [(100, 120)]


def test_before_anything_is_accounted_for_nothing_is_said_to_be() -> None:
    each = InterestCoverage()
    assert each.learnt(5, 10, 40) == 0
    assert each.covered([(10, 30)], 5) == []


def test_what_was_answered_on_behalf_of_a_version_accounts_for_it() -> None:
    each = InterestCoverage()
    each.learnt(5, 10, 10)
    each.learnt(7, 100, 100)
    each.answered(7, 20, 30)  # nobody had asked for it
    assert each.covered([(10, 110)], 7) == [(100, 110)]
    each.need(7)
    each.answered(7, 20, 30)
    each.answered(6, 40, 50)
    assert each.covered([(10, 110)], 7) == [(20, 30), (100, 110)]
    each.need(8)  # a later one asks: what was answered before was not for it
    assert each.covered([(10, 110)], 8) == []
    each.answered(9, 20, 30)
    each.lose(25)
    assert each.covered([(10, 110)], 8) == [(25, 30)]
