"""LoggedSizes against a list of all entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.publishing.logged_sizes import BOUNDS_MAX, LoggedSizes


class Counting:
    """Counts how often an entry of the array below is read."""

    def __init__(self, sizes: LoggedSizes) -> None:
        self._numbers = sizes._numbers
        self.read = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: int) -> int:
        self.read += 1
        return self._numbers[at]


class Plain:
    """The same, with all entries in a list that is gone through every time: last tick, bytes, first tick."""

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self.entries = [(tick, size, tick) for tick, size in entries]

    def beyond(self, bytes_max: int) -> int | None:
        excess, upto = sum(size for _, size, _ in self.entries) - bytes_max, None
        for tick, size, _ in self.entries:
            if excess <= 0:
                break
            upto, excess = tick, excess - size
        return upto

    def last_event(self, upto: int) -> int | None:
        return max((min(tick, upto) for tick, _, first in self.entries if first <= upto), default=None)


BOUNDS = st.sampled_from([0, 50, 100, 300, 1_000, 5_000])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 200)),
        st.tuples(st.just("last"), st.integers(-5, 40)),
        st.tuples(st.just("lose"), st.integers(0, 40)),
        st.tuples(st.just("beyond"), BOUNDS),
    ),
    max_size=60,
)


@given(st.lists(st.integers(0, 200), max_size=20), STEPS)
def test_what_must_go_is_the_same_as_in_a_list_of_all_entries(
    begin: list[int], steps: list[tuple[str, int]]
) -> None:
    entries = [(10 * place, size) for place, size in enumerate(begin, 1)]
    sizes, plain, last = LoggedSizes(entries), Plain(entries), 10 * len(entries)
    for what, number in steps:
        if what == "append":
            last += 10
            count = 1 + number % 10
            sizes.append(last, number, count)
            plain.entries.append((last, number, last - count + 1))
        elif what == "last":
            upto = (plain.entries[0][0] if plain.entries else last) + number
            assert sizes.last_event(upto) == plain.last_event(upto)
        elif what == "lose":
            upto = (plain.entries[0][0] if plain.entries else last) + number
            sizes.lose(upto)
            plain.entries = [entry for entry in plain.entries if entry[0] > upto]
        else:
            assert sizes.beyond(number) == plain.beyond(number)
        assert sizes.bytes == sum(size for _, size, _ in plain.entries)


def test_no_entry_is_looked_at_twice_for_the_same_bound() -> None:
    sizes = LoggedSizes((tick, 100) for tick in range(1, 1_001))
    assert sizes.beyond(5_000) == 950
    counting = Counting(sizes)
    sizes._numbers = counting  # type: ignore[assignment]
    for _ in range(100):
        assert sizes.beyond(5_000) == 950
    assert counting.read <= 200


def test_bounds_that_nobody_asks_for_any_more_are_forgotten() -> None:
    sizes = LoggedSizes((tick, 100) for tick in range(1, 11))
    for bytes_max in range(0, 1_000, 100):
        assert sizes.beyond(bytes_max) == 10 - bytes_max // 100
    assert len(sizes._excesses) <= BOUNDS_MAX


def test_a_release_of_a_million_batches_looks_at_few_of_them_one_by_one() -> None:
    sizes = LoggedSizes((10 * place, place % 7) for place in range(1, 1_000_001))
    numbers = sizes._numbers
    counting = Counting(sizes)
    sizes._numbers = counting  # type: ignore[assignment]
    assert sizes.last_event(6_000_005) == 6_000_000
    assert counting.read <= 40
    sizes._numbers = numbers
    sizes.lose(6_000_005)
    assert sizes.bytes == sum(place % 7 for place in range(600_001, 1_000_001))
    assert sizes.last_event(6_000_015) == 6_000_010
