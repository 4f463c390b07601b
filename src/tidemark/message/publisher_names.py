"""Publishers' names: which of them an application gave, which a client made for itself; moves and owners.

A name that an application gave can come back at any time, from another process, and goes on with its numbers.
A name that a client made has a random part and ends with that client: nobody can come back under it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Publishers of clients that made their own name which a pubend remembers, besides those with a given name:
#: the one that has not published for the longest time is forgotten. If its client is still there, it is told.
MADE_NAMES_MAX = 16_384

#: Made by a client: 16 hexadecimal digits, and the number of the stream if it is not the client's first one.
_MADE = re.compile(r"publisher-[0-9a-f]{16}(\.[0-9]{1,6})?")


class PublisherMove(NamedTuple):
    """The last move of a publisher that a pubend knows, away from it or to it, and whose the publisher is."""

    #: moves count up, from one pubend of the publisher to the next; 0 if it never moved
    number: int
    #: the pubend that the publisher went to; empty if it came to the pubend that remembers this
    to: str = ""
    #: the principal that the publisher's name belongs to at this pubend; empty if it belongs to nobody
    owner: str = ""


#: Made by a sink of Spark: the name that its events show, and 12 hexadecimal digits of each of its runs.
_OF_SINK = re.compile(r"(spark-.+)-[0-9a-f]{12}", re.DOTALL)


def may_show(publisher: str, shown: str) -> bool:
    """Return whether events of a publisher may show this name as their publisher; "" is no name."""
    if shown in ("", publisher):
        return True
    of_sink = _OF_SINK.fullmatch(publisher)
    return of_sink is not None and of_sink[1] == shown


def made_name(random: str) -> str:
    """Returns the name that a client makes of 16 random hexadecimal digits."""
    name = f"publisher-{random}"
    assert is_made(name)
    return name


def is_made(name: str) -> bool:
    """Returns whether a client made this name for itself."""
    return _MADE.fullmatch(name) is not None
