"""The frames by which a named publisher goes from one pubend to another (docs/overlay.md).

The moves of a publisher are numbered: 1 is the move away from the first pubend that it published to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leave:
    """A publisher wants to leave a pubend, and to know which of its events are there.

    It goes to the publisher's broker and from there, broker by broker, to the one that hosts the pubend. The
    publisher repeats it until Left answers. If `to` is the pubend itself, it only asks where the publisher
    is.
    """

    pubend: str
    publisher: str
    #: earlier pubends of the publisher have its events up to this one
    sequence: int
    #: the number of this move: one more than that of the move that brought the publisher to the pubend
    move: int
    #: the pubend that the publisher goes to
    to: str
    #: a digest of the principal that asks, for brokers that pass it on; "" from clients and where there are
    #: no accounts
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to Leave: the publisher went to `to` in this move, or is still there if `to` is the pubend.

    If it has gone, that is on disk, and so are its events up to `sequence`, the last of them at `tick`, at
    this pubend or at earlier ones. The pubend takes no others before the publisher comes back.
    """

    pubend: str
    publisher: str
    sequence: int
    tick: int
    move: int
    to: str


@dataclass(frozen=True, slots=True)
class Come:
    """A publisher has left another pubend for this one, in this move: its next event follows `sequence`.

    The answer is Published, once that is on disk, or Refused with the code "moved" if the pubend knows of a
    later move.
    """

    pubend: str
    publisher: str
    sequence: int
    move: int
