"""A question of administrators, the type of its answer, and the pages that a long answer comes in.

An answer that grows with the number of clients comes in pages, so that no question costs more than a page.
Whoever asks with the argument `limit` gets an object: `items`, and `next`, which is the argument `after` of
the question for the next page, or null. Whoever asks without gets all items in an array, or a refusal if they
are too many for one answer.

The questions themselves are in `wire.answers`, beside the dataclasses of their answers. This module is apart
because the client needs the type of a question whenever it is imported, and the answers only when it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from tidemark.errors import TidemarkError, WireError
from tidemark.wire.json_objects import JsonObject, dumps, read_json

#: Items of one page, and characters of their JSON; a single item may have more.
PAGE_ITEMS_MAX = 200
PAGE_CHARACTERS_MAX = 128 << 10
#: Items of an answer to a question that asks for no page.
WHOLE_ITEMS_MAX = 500

#: the type of an answer
Answered = TypeVar("Answered")
_Answered_co = TypeVar("_Answered_co", covariant=True)


#: The right that a user needs to ask a question at a broker with accounts. `everyone`: any user that has
#: logged in, about what concerns that user. `monitor`: a user that may monitor or keeps the archive.
#: `pipeline`: a user that keeps the archive, or an administrator. `administer`: an administrator.
Right = Literal["everyone", "monitor", "pipeline", "administer"]


@dataclass(frozen=True, slots=True)
class Question(Generic[_Answered_co]):
    """A question of administrators, the type of its answer, and who may ask it."""

    what: str
    answer: type[_Answered_co]
    right: Right
    #: the answer comes in pages
    is_paged: bool = False

    def read(self, found: object) -> _Answered_co:
        """Return the answer of what `json.loads` made of its text; WireError if it is no such answer."""
        return read_json(self.answer, found)


class TooLongError(TidemarkError):
    """An answer is too long to come whole."""


def items_max(total: int, given: Mapping[str, object]) -> int:
    """Return how many of `total` items an answer to a question with these arguments has at most.

    Raises TooLongError if no page was asked for and all items are too many for one answer.
    """
    limit = given.get("limit")
    if isinstance(limit, int):
        return max(1, min(limit, PAGE_ITEMS_MAX))
    if total > WHOLE_ITEMS_MAX:
        raise _too_long()
    return WHOLE_ITEMS_MAX


def page_of(items: Iterable[tuple[str, JsonObject]], total: int, given: Mapping[str, object]) -> str:
    """Return the JSON of the page that the arguments `given` ask for, or of the whole answer.

    `items` gives (cursor, item) from the argument `after` on; it is read no further than the page goes, and
    not at all if `total`, the number of all items, is too large for an answer without pages.
    Raises TooLongError if no page was asked for and the whole answer is too long for one.
    """
    is_paged = isinstance(given.get("limit"), int)
    most = items_max(total, given)
    texts: list[str] = []
    size, last = 0, ""
    for cursor, item in items:
        if len(texts) >= most or size > PAGE_CHARACTERS_MAX:
            break
        texts.append(dumps(item))
        size += len(texts[-1])
        last = cursor
    else:
        last = ""
    if not is_paged and last:
        raise _too_long()
    array = f"[{', '.join(texts)}]"
    return f'{{"items": {array}, "next": {dumps(last or None)}}}' if is_paged else array


def _too_long() -> TooLongError:
    # How many items there are is not told: whoever asks may not see all of them.
    return TooLongError(
        "there is too much for one answer: ask for pages, with the arguments limit and after, or use a newer "
        "client"
    )


def read_page(found: Any) -> tuple[list[Any], str | None]:
    """Return the items of a page, and where the next one begins; None after the last.

    An array is the whole answer of a broker that knows no pages. Raises WireError if `found` is neither.
    """
    if isinstance(found, list):
        return found, None
    if isinstance(found, dict) and isinstance(found.get("items"), list):
        after = found.get("next")
        if after is None or (isinstance(after, str) and found["items"]):
            return found["items"], after
    raise WireError("the answer of the broker is no page")
