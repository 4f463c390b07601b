"""CheckpointToken: everything a subscriber has consumed, `{pubend: tick}` (DSN'03 2).

A token is an immutable value that the application keeps. A pubend that is not in a token counts as less than
any tick: the holder has consumed nothing of it. So tokens form a lattice under `merge` and `meet`. Equal
tokens have equal texts and equal JSON: both may be compared as strings.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from operator import index
from typing import Any

from tidemark.errors import TokenError
from tidemark.ticks.tick import TICK_FIRST, TICK_LAST, TICK_MAX, Tick, is_position
from tidemark.ticks.token_text import TEXT_CHARS_MAX, damaged, decode, encode

PUBEND_BYTES_MAX = 255


class CheckpointToken(Mapping[str, Tick]):
    """How far a subscriber got in each pubend. Iteration is in the order of the pubends' names."""

    __slots__ = ("_ticks",)

    def __init__(self, ticks: Mapping[str, Tick] | None = None) -> None:
        """Raises TokenError unless every key is a pubend's name and every value a tick."""
        checked = [(_checked_name(name), _checked_tick(name, tick)) for name, tick in (ticks or {}).items()]
        self._ticks = dict(sorted(checked))

    @classmethod
    def of_checked(cls, ticks: dict[str, Tick]) -> CheckpointToken:
        """The token of ticks whose names are in order and were checked, as its values were.

        The token keeps `ticks`: the caller must not change it.
        """
        self = cls.__new__(cls)
        self._ticks = ticks
        return self

    def advance(self, pubend: str, tick: Tick) -> CheckpointToken:
        """The token whose holder has also consumed `pubend` up to `tick`.

        Returns this token itself if it covers that tick already.
        """
        if pubend in self._ticks and tick <= self._ticks[pubend]:
            return self
        return CheckpointToken({**self._ticks, pubend: tick})

    def merge(self, other: CheckpointToken) -> CheckpointToken:
        """The token of what either holder has consumed: the later tick of each pubend."""
        later = {name: max(tick, self._ticks.get(name, tick)) for name, tick in other.items()}
        return CheckpointToken({**self._ticks, **later})

    def meet(self, other: CheckpointToken) -> CheckpointToken:
        """The token of what both holders have consumed: the earlier tick of each pubend that is in both."""
        both = self._ticks.keys() & other._ticks.keys()
        return CheckpointToken({name: min(self._ticks[name], other._ticks[name]) for name in both})

    def covers(self, other: CheckpointToken) -> bool:
        """Has the holder of this token consumed everything that the holder of `other` has?"""
        mine = self._ticks
        return all(name in mine and mine[name] >= tick for name, tick in other._ticks.items())

    def text(self) -> str:
        """The text to keep: `tm1.` followed by letters, digits, `-` and `_`."""
        return encode(self._ticks.items())

    @classmethod
    def parse(cls, text: str) -> CheckpointToken:
        """The token of a text; TokenError unless it is exactly what `text()` returns for some token."""
        token = cls(dict(decode(text)))
        # `decode` accepts another order, a longer spelling of a number or a repeated name; no `text()` has
        # them, so the text was altered.
        if token.text() != text:
            raise damaged(text)
        return token

    def to_json(self) -> str:
        """`{"pubend":tick}`, keys sorted, no spaces, ASCII."""
        return json.dumps(self._ticks, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CheckpointToken:
        """The token of a JSON object of ticks, in any spacing and order; TokenError for any other text."""
        if len(text) > TEXT_CHARS_MAX:
            raise TokenError(f"{len(text)} characters are over the limit of {TEXT_CHARS_MAX}", text=text)
        try:
            pairs = json.loads(text, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError) as error:
            raise TokenError(f'this is not JSON ({error}); write {{"pubend": tick}}', text=text) from error
        if not isinstance(pairs, _Pairs):
            raise TokenError('this is not a JSON object; write {"pubend": tick}', text=text)
        if len(dict(pairs)) < len(pairs):
            raise TokenError("a pubend is named twice; keep the tick that was consumed", text=text)
        return cls(dict(pairs))

    def __getitem__(self, pubend: str) -> Tick:
        return self._ticks[pubend]

    # Those that Mapping has call __getitem__ for each name.

    def items(self) -> ItemsView[str, Tick]:
        """The pubends, in the order of their names, with their ticks."""
        return self._ticks.items()

    def values(self) -> ValuesView[Tick]:
        """The ticks, in the order of the pubends' names."""
        return self._ticks.values()

    def __contains__(self, pubend: object) -> bool:
        return pubend in self._ticks

    def __iter__(self) -> Iterator[str]:
        return iter(self._ticks)

    def __len__(self) -> int:
        return len(self._ticks)

    def __eq__(self, other: object) -> bool:
        return self._ticks == other._ticks if isinstance(other, CheckpointToken) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._ticks.items()))

    def __le__(self, other: CheckpointToken) -> bool:
        """True if `other` covers this token. A partial order: of two tokens neither need cover the other."""
        return other.covers(self)

    def __lt__(self, other: CheckpointToken) -> bool:
        return self != other and other.covers(self)

    def __str__(self) -> str:
        """What `text()` returns, which `parse` reads."""
        return self.text()

    def __repr__(self) -> str:
        return f"CheckpointToken({self._ticks})"


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object as they were written, repeated keys included."""


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise TokenError("a pubend has a name of at least one character; use it as the key", text=repr(name))
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise TokenError("a pubend's name is Unicode text; half a surrogate is not", text=name) from error
    if size > PUBEND_BYTES_MAX:
        raise TokenError(f"a pubend's name has at most {PUBEND_BYTES_MAX} bytes, not {size}", text=name)
    return name


def _checked_tick(name: str, tick: Any) -> Tick:
    try:
        number = index(tick)
    except TypeError:
        number = TICK_MAX + 1
    if isinstance(tick, bool) or not is_position(number):
        raise TokenError(
            f"{tick!r:.40} is not a tick; write microseconds, from {TICK_FIRST} to {TICK_LAST}", text=name
        )
    return number
