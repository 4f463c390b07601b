"""A question of administrators, and the type of its answer.

The questions themselves are in `wire.answers`, beside the dataclasses of their answers. This module is apart
because the client needs the type of a question whenever it is imported, and the answers only when it asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark.wire.json_objects import read_json

#: the type of an answer
Answered = TypeVar("Answered")
_Answered_co = TypeVar("_Answered_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Question(Generic[_Answered_co]):
    """A question of administrators, and the type of its answer."""

    what: str
    answer: type[_Answered_co]

    def read(self, found: object) -> _Answered_co:
        """Return the answer of what `json.loads` made of its text; WireError if it is no such answer."""
        return read_json(self.answer, found)
