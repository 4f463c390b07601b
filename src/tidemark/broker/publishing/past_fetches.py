"""PastFetches: what subscribers fetch from pubends' logs because no stream has it, several pieces at a time.

How many ticks fit into one answer is not known before the first has come, so the first fetch is for the whole
range. From then on, the pieces that follow are asked for before the one before has come, as long as there is
room on the way: a line with a long round trip is not idle between two pieces. A piece that is answered in
part is asked for again from there on. Subscribers are given the answers in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tidemark.broker.publishing.fetching import FETCH_BYTES_MAX, Fetching
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Fetched

#: Pieces of one subscriber that are under way, or have come before the one that is next.
PIECES_MAX = 8
#: An answer of fewer bytes than this that is a whole piece makes the next pieces longer.
SHORT_BYTES = FETCH_BYTES_MAX >> 2

Key = tuple[str, int]


@dataclass(slots=True)
class _Piece:
    """`(base, upto]`, which was asked for."""

    base: int
    upto: int
    give_up: Callable[[], None]
    answer: Fetched | None = None


@dataclass(slots=True)
class _Run:
    """What one subscriber fetches of one pubend: `(.., upto]`, of which all up to `asked` was asked for."""

    wanted: TopicSelector
    asked: int
    upto: int
    #: the ticks of a piece; 0 before that is known
    span: int
    #: in order of ticks, without holes
    pieces: deque[_Piece] = field(default_factory=deque)


class PastFetches:
    """All fetches of one host for its subscribers."""

    def __init__(self, fetching: Fetching, told: Callable[[int, Fetched], bool]) -> None:
        """`told` gives an answer to a subscriber; it returns whether the subscriber can take more."""
        self._fetching = fetching
        self._told = told
        self._runs: dict[Key, _Run] = {}
        #: the ticks of a piece, for subscribers that have fetched before in the same catchup stream
        self._spans: dict[Key, int] = {}

    def is_under_way(self, key: Key) -> bool:
        """Return whether something is being fetched for a subscriber, (pubend, id)."""
        return key in self._runs

    def begin(self, key: Key, base: int, upto: int, wanted: TopicSelector) -> None:
        """Fetch `(base, upto]` for a subscriber that fetches nothing, or at least a first part of it."""
        assert key not in self._runs
        self._runs[key] = run = _Run(wanted, base, upto, self._spans.get(key, 0))
        self._ask(key, run, min(upto, base + run.span) if run.span else upto)
        self._ask_more(key, run)

    def end(self, key: Key) -> None:
        """Give up what is being fetched for a subscriber."""
        self._spans.pop(key, None)
        run = self._runs.pop(key, None)
        for piece in run.pieces if run is not None else ():
            if piece.answer is None:
                piece.give_up()

    def _ask(self, key: Key, run: _Run, upto: int, at: int | None = None) -> None:
        """Ask for what follows piece number `at`, or the last, up to `upto`."""
        place = len(run.pieces) if at is None else at + 1
        base = run.pieces[place - 1].upto if place else run.asked
        piece = _Piece(base, upto, lambda: None)
        run.pieces.insert(place, piece)
        run.asked = max(run.asked, upto)
        answered = partial(self._answered, key, run, piece)
        piece.give_up = self._fetching.ask(key[0], base, upto, run.wanted, answered)

    def _answered(self, key: Key, run: _Run, piece: _Piece, frame: Fetched) -> None:
        """A piece has come, or a first part of it."""
        if self._runs.get(key) is not run:
            return
        piece.answer = frame
        covered = frame.upto - frame.base
        if frame.upto < piece.upto:
            rest, piece.upto = piece.upto, frame.upto
            run.span = max(1, covered)
            if piece is run.pieces[-1]:
                run.asked = frame.upto
            else:
                self._ask(key, run, rest, run.pieces.index(piece))
        elif run.span and (len(frame.batch.data) if frame.batch is not None else 0) < SHORT_BYTES:
            run.span = max(run.span, min(2 * covered, 2 * run.span))
        self._tell(key, run)

    def _tell(self, key: Key, run: _Run) -> None:
        """Give the subscriber what is next, and ask for more."""
        can_take_more = True
        while run.pieces and (answer := run.pieces[0].answer) is not None:
            run.pieces.popleft()
            can_take_more = self._told(key[1], answer)
            if self._runs.get(key) is not run:
                return  # it was given up: the archive has to be asked first
        if can_take_more:
            self._ask_more(key, run)
        if not run.pieces:
            self._spans[key] = run.span
            del self._runs[key]  # the next piece begins where the subscriber is

    def _ask_more(self, key: Key, run: _Run) -> None:
        """Ask for further pieces, as many as there is room for."""
        while run.span and run.asked < run.upto and len(run.pieces) < PIECES_MAX:
            if not self._fetching.has_room(key[0]):
                return
            self._ask(key, run, min(run.upto, run.asked + run.span))
