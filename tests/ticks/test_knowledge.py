"""TickKnowledge against one letter per tick."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ticks.stream_text import knowledge, ticks
from tidemark.ticks import Range, TickKnowledge

FIRST, LAST = 1, 24


def runs(picked: list[bool]) -> list[Range]:
    """Maximal runs of the ticks picked, the first of which is FIRST."""
    found: list[Range] = []
    for tick, wanted in enumerate(picked, FIRST):
        if wanted and found and found[-1][1] == tick - 1:
            found[-1] = (found[-1][0], tick)
        elif wanted:
            found.append((tick - 1, tick))
    return found


ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))
steps = st.lists(
    st.tuples(
        st.sampled_from(["learn", "learn", "learn", "forget", "lose"]),
        ranges,
        st.sets(st.integers(FIRST, LAST)),
    ),
    max_size=14,
)


class Naive:
    """The definition: a list of letters."""

    def __init__(self) -> None:
        self.letters = ["Q"] * LAST

    def learn(self, base: int, upto: int, data: list[int]) -> tuple[list[Range], list[bool]]:
        before = self.letters.copy()
        for tick in range(base + 1, upto + 1):
            if before[tick - 1] in "QS":
                self.letters[tick - 1] = "D" if tick in data else "S"
        return self.resolved(before), [before[tick - 1] in "QS" for tick in data]

    def lose(self, upto: int) -> list[Range]:
        before = self.letters.copy()
        self.letters[:upto] = ["L"] * upto
        return self.resolved(before)

    def forget(self, base: int, upto: int) -> int:
        part = self.letters[base:upto]
        self.letters[base:upto] = ["L" if state == "L" else "Q" for state in part]
        return part.count("D")

    def resolved(self, before: list[str]) -> list[Range]:
        pairs = zip(before, self.letters, strict=True)
        return runs([old == "Q" != new for old, new in pairs])


@settings(derandomize=True, deadline=None, max_examples=400)
@given(steps, ranges)
def test_knowledge_agrees_with_one_letter_per_tick(
    steps: list[tuple[str, Range, set[int]]], asked: Range
) -> None:
    actual, model = TickKnowledge(0), Naive()
    for step, (base, upto), some in steps:
        if step == "learn":
            data = sorted(tick for tick in some if base < tick <= upto)
            learnt = actual.learn(base, upto, ticks(*data))
            assert (learnt.resolved, learnt.new.tolist()) == model.learn(base, upto, data)
        elif step == "lose":
            assert actual.lose(upto) == model.lose(upto)
        else:
            assert actual.forget(base, upto) == model.forget(base, upto)
        assert actual.text(FIRST, LAST) == "".join(model.letters)
    base, upto = asked
    letters = model.letters
    inside = [base < tick <= upto for tick in range(FIRST, LAST + 1)]
    unknown = [state == "Q" and within for state, within in zip(letters, inside, strict=True)]
    assert actual.unknown(base, upto) == runs(unknown)
    assert actual.data.within(base, upto).tolist() == [
        tick for tick in range(base + 1, upto + 1) if letters[tick - 1] == "D"
    ]
    behind = base + next((count for count, state in enumerate([*letters[base:], "Q"]) if state == "Q"))
    assert actual.horizon(base) == behind


def test_text_and_fixture_are_each_others_inverse() -> None:
    for text in ("DQD", "LLSD", "QQQ", "L", "SSDQ"):
        assert knowledge(text, first=104).text(104, 103 + len(text)) == text
    assert knowledge("DQD", first=104).text(103, 107) == "QDQDQ"


def test_the_doubt_horizon_is_before_the_first_unknown_tick() -> None:
    stream = knowledge("DSQD", first=104)
    assert stream.horizon(103) == 105
    assert stream.horizon(105) == 105
    assert stream.horizon(106) == 107
    assert stream.unknown(103, 110) == [(105, 106), (107, 110)]


def test_the_doubt_horizon_passes_what_is_lost() -> None:
    stream = knowledge("LLSDQ", first=104)
    assert stream.horizon(90) == 107
    assert stream.unknown(90, 108) == [(107, 108)]
    assert stream.unknown(90, 100) == []


def test_a_duplicate_changes_nothing() -> None:
    stream = TickKnowledge(100)
    first = stream.learn(100, 110, ticks(103, 107))
    again = stream.learn(100, 110, ticks(103, 107))
    assert (first.resolved, first.new.tolist()) == ([(100, 110)], [True, True])
    assert (again.resolved, again.new.tolist()) == ([], [False, False])


def test_data_replaces_silence_because_silence_is_relative_to_selectors() -> None:
    stream = knowledge("SSSD", first=104)
    learnt = stream.learn(103, 107, ticks(105))
    assert learnt.resolved == []
    assert learnt.new.tolist() == [True]
    assert stream.text(104, 107) == "SDSD", "and silence does not replace data"


def test_a_batch_that_straddles_the_lost_prefix_is_cut_row_by_row() -> None:
    stream = TickKnowledge(105)
    learnt = stream.learn(100, 110, ticks(103, 105, 106, 109))
    assert learnt.resolved == [(105, 110)]
    assert learnt.new.tolist() == [False, False, True, True]
    assert stream.text(104, 110) == "LLDSSDS"


def test_what_lies_below_the_lost_prefix_teaches_nothing() -> None:
    stream = TickKnowledge(200)
    learnt = stream.learn(100, 110, ticks(103))
    assert (learnt.resolved, learnt.new.tolist()) == ([], [False])
    assert stream.lose(150) == []
    assert stream.lost == 200


def test_what_a_cache_forgets_is_unknown_and_can_be_learnt_again() -> None:
    stream = knowledge("DDSD", first=104)
    assert stream.forget(104, 106) == 1
    assert stream.text(104, 107) == "DQQD"
    assert stream.learn(103, 107, ticks(104, 105, 107)).new.tolist() == [False, True, False]


def test_knowledge_that_contradicts_itself_is_a_bug() -> None:
    for base, upto, data in (
        (10, 9, ()),
        (10, 20, (10,)),
        (10, 20, (21,)),
        (10, 20, (12, 12)),
        (10, 20, (13, 12)),
    ):
        with pytest.raises(AssertionError):
            TickKnowledge().learn(base, upto, ticks(*data))


def test_knowledge_prints_what_it_holds() -> None:
    assert (
        repr(knowledge("LDQ", first=104))
        == "TickKnowledge(lost=104, known=RangeSet((104, 105]), data=1 ticks)"
    )
