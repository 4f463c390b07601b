"""KeyMemo: the match sets of events whose keys were met before, so that a set that repeats costs a look-up.

Where no condition is evaluated, what an event matches follows from its keys alone. The memo holds until a
rule changes or match sets are forgotten. It costs a little for every event that is new, so it pauses while
few events repeat. It goes by counts of rows only, so that the same batches are always treated alike.
"""

from __future__ import annotations

from tidemark.matching.index.arrays import Ids, Words, few_looked_up

#: Events whose keys are held; beyond that all are forgotten.
MEMO_ROWS_MAX = 1 << 15
#: Keys of an event that has more columns are not held.
MEMO_COLUMNS_MAX = 32
#: After so many rows it is decided whether to go on, and for how many rows to pause otherwise.
TRIED_ROWS = 2_048
PAUSED_ROWS = 1 << 16
#: The memo pauses if fewer than one in so many rows was known.
WORTH_ONE_IN = 4


class KeyMemo:
    """keys of an event -> number of its match set."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        #: rows looked up since the last decision, and those of them that were known
        self._tried = 0
        self._known = 0
        #: rows that are still left out
        self._paused = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def forget(self) -> None:
        """Forget everything, because the rules or the numbers of match sets have changed."""
        self._numbers.clear()

    def is_worth(self, keys: Words) -> bool:
        """Whether to look up keys[column, row] of a batch; counts its rows."""
        columns, count = keys.shape
        if columns > MEMO_COLUMNS_MAX:
            return False
        if self._paused > 0:
            self._paused -= count
            return False
        if self._tried >= TRIED_ROWS:
            if self._known * WORTH_ONE_IN < self._tried:
                self._paused = PAUSED_ROWS
                self._numbers.clear()
            self._tried = self._known = 0
        return self._paused == 0

    def few(self, keys: Words) -> Ids | None:
        """keys[column, row] -> the number of each match set, if they are few and known; else None."""
        found = few_looked_up(keys, self._numbers)
        if found is not None:
            self._tried += len(found)
            self._known += len(found)
        return found

    def look_up(self, keys: Words) -> tuple[list[bytes], list[int | None]]:
        """keys[column, row] -> the bytes of each row's keys, and the number of its match set if known."""
        columns, count = keys.shape
        rows: list[bytes] = keys.T.copy().view(f"V{8 * columns}").ravel().tolist()
        numbers = list(map(self._numbers.get, rows))
        self._tried += count
        self._known += count - numbers.count(None)
        return rows, numbers

    def learn(self, rows: list[bytes], numbers: list[int]) -> None:
        """Hold the numbers of the match sets of some rows."""
        if len(self._numbers) + len(rows) > MEMO_ROWS_MAX:
            self._numbers.clear()
        if len(rows) <= MEMO_ROWS_MAX:
            self._numbers.update(zip(rows, numbers, strict=True))

    @property
    def nbytes(self) -> int:
        """Memory, as an estimate."""
        return 200 * len(self._numbers)
