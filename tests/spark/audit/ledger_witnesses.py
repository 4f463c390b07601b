"""Small ledgers, one for each thing that the audit judges, with what a person says of them.

An event of the publisher is `NUMBER@TICK` (acknowledged at that tick), `NUMBER@-` (acknowledged, at a tick
that was not told), `NUMBER?` (outcome unknown) or `NUMBER` (nothing said); with `!` behind it, it does not
match; `b` before it, it is of another publisher. What a subscriber has is `NUMBER@TICK`, with `~` behind it
if altered, or a gap `(BASE,UPTO]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tidemark.ticks.tick import TICK_MAX

Line = dict[str, Any]

_PUBLISHED = re.compile(r"(b?\d+)(@\d+|@-|\?|)(!?)")
_GOT = re.compile(r"(b?\d+)@(\d+)(~?)")
_GAP = re.compile(r"\((\d+),(\d+)\]")


@dataclass(frozen=True, slots=True)
class Witness:
    """What was published, what each subscriber has, and what is right to say of the last subscriber."""

    published: str
    #: of several subscribers, one a string
    got: tuple[str, ...]
    lost: str = ""
    duplicated: str = ""
    out_of_order: str = ""
    wrong: str = ""
    in_gaps: int = 0
    start: int = 0

    def faults(self, name: str) -> dict[str, list[str]]:
        """Fault -> keys, of the last subscriber."""
        faults = ("lost", "duplicated", "out_of_order", "wrong")
        return {
            fault: [_key(name, number) for number in getattr(self, fault).split()]
            for fault in faults
            if getattr(self, fault)
        }

    def publisher_lines(self, name: str) -> list[Line]:
        """The publisher's ledger."""
        lines: list[Line] = []
        for number, outcome, odd in self._events():
            publisher, _, sequence = _key(name, number).partition("-")
            who = {"publisher": publisher, "sequence": int(sequence), "key": _key(name, number)}
            where = {"pubend": f"{name}.p", "topic": f"{name}.t"}
            lines.append({"what": "publish", **who, **where, "fields": _fields(odd), "time": 1_000})
            if outcome == "?":
                lines.append({"what": "outcome", **who, "outcome": "unknown", "reason": "gone"})
            elif outcome:
                tick = None if outcome == "@-" else int(outcome[1:])
                lines.append({"what": "outcome", **who, "outcome": "acked", "tick": tick})
        return lines

    def subscriber_lines(self, name: str) -> dict[str, list[Line]]:
        """The subscribers' ledgers, by their names."""
        odds = {number: odd for number, _, odd in self._events()}
        asked = {"topic": f"{name}.t", "where": "price < 50", "durable": True}
        found: dict[str, list[Line]] = {}
        for at, text in enumerate(self.got):
            who = {"subscriber": f"{name}s{at}"}
            found[f"{name}s{at}"] = [
                {"what": "subscriber", **who, **asked, "start": {f"{name}.p": self.start}},
                *(who | _received(token, name, odds) for token in text.split()),
            ]
        return found

    def _events(self) -> list[tuple[str, str, str]]:
        return [_matched(_PUBLISHED, token) for token in self.published.split()]


def _received(token: str, name: str, odds: dict[str, str]) -> Line:
    if token.startswith("("):
        base, upto = _matched(_GAP, token)
        gap = {"pubend": f"{name}.p", "base": int(base), "upto": int(upto), "reason": "away"}
        return {"what": "gap", **gap}
    number, tick, altered = _matched(_GOT, token)
    where = {"key": _key(name, number), "pubend": f"{name}.p", "tick": int(tick), "topic": f"{name}.t"}
    fields = _fields(odds.get(number, "")) | ({"qty": 1} if altered else {})
    return {"what": "event", **where, "fields": fields, "time": 1_500}


def _key(name: str, number: str) -> str:
    return f"{name}b-{number[1:]}" if number.startswith("b") else f"{name}-{number}"


def _fields(odd: str) -> Line:
    return {"price": 90.0 if odd else 10.0}


def _matched(pattern: re.Pattern[str], token: str) -> Any:
    found = pattern.fullmatch(token)
    assert found is not None, token
    return found.groups()


THREE = "1@10 2@20 3@30"

WITNESSES = {
    "all is well": Witness(THREE, ("1@10 2@20 3@30",)),
    "lost": Witness(THREE, ("1@10 3@30",), lost="2"),
    "lost by one of two": Witness(THREE, ("1@10 2@20 3@30", "1@10 2@20"), lost="3"),
    "duplicated": Witness(THREE, ("1@10 2@20 2@20 3@30",), duplicated="2"),
    "duplicated at another tick": Witness(THREE, ("1@10 2@20 3@30 2@40",), duplicated="2"),
    "out of order by tick": Witness(THREE, ("1@10 3@30 2@20",), out_of_order="2"),
    "out of order by number": Witness("1@20 2@10", ("2@10 1@20",), out_of_order="1"),
    "out of order by tick, of two publishers": Witness("1@10 b1@20", ("b1@20 1@10",), out_of_order="1"),
    "two events at one tick": Witness("1@10 b1@10", ("1@10 b1@10",), out_of_order="b1"),
    "numbers are each publisher's own": Witness("1@10 2@20 b1@30", ("1@10 2@20 b1@30",)),
    "all after a far tick are late": Witness(THREE, ("3@30 1@10 2@20",), out_of_order="1 2"),
    "what is wrong sets no order": Witness("1@10 2@20! 3@30", ("2@20 1@10 3@30",), wrong="2"),
    "not matching": Witness("1@10 2@20!", ("1@10 2@20",), wrong="2"),
    "altered": Witness(THREE, ("1@10 2@20~ 3@30",), wrong="2", lost="2"),
    "at another tick": Witness(THREE, ("1@10 2@21 3@30",), wrong="2", lost="2"),
    "wrong, then right": Witness(THREE, ("1@10 2@21 2@20 3@30",), wrong="2"),
    "never published": Witness(THREE, ("1@10 2@20 3@30 7@70",), wrong="7"),
    "unknown, delivered never": Witness("1@10 2?", ("1@10",)),
    "unknown, delivered once": Witness("1@10 2?", ("1@10 2@20",)),
    "unknown, delivered twice": Witness("1@10 2?", ("1@10 2@20 2@21",), duplicated="2"),
    "unknown, delivered to another": Witness("1@10 2?", ("1@10 2@20", "1@10"), lost="2"),
    "two ticks of one event": Witness("1?", ("1@10", "1@11"), wrong="1", lost="1"),
    "acknowledged by a later number": Witness("1? 2 3@30", ("3@30",), lost="1 2"),
    "acknowledged is a later number of another": Witness("1 b1@10 b2@20", ("b1@10 b2@20",)),
    "nothing said after the last": Witness("1@10 2 3", ("1@10",)),
    "from the start on": Witness(THREE, ("2@20 3@30",), start=10),
    "just after the start": Witness(THREE, ("2@20 3@30",), start=9, lost="1"),
    "before the start": Witness(THREE, ("1@10 2@20 3@30",), start=10, wrong="1"),
    "at the start at the latest": Witness("1@- 2@20", ("2@20",), start=19),
    "perhaps after the start": Witness("1@- 2@20", ("2@20",), start=18, lost="1"),
    "in a gap": Witness(THREE, ("1@10 (10,20] 3@30",), in_gaps=1),
    "in the smallest gap": Witness(THREE, ("1@10 (19,20] 3@30",), in_gaps=1),
    "just before a gap": Witness(THREE, ("1@10 (20,25] 3@30",), lost="2"),
    "just after a gap": Witness(THREE, ("1@10 (10,19] 3@30",), lost="2"),
    "in a wide gap with a small one in it": Witness(THREE, ("(5,30] (6,7]",), in_gaps=3),
    "delivered although in a gap": Witness(THREE, ("1@10 (10,20] 2@20 3@30",)),
    "gap of another subscriber": Witness(THREE, ("(5,30]", "1@10 3@30"), lost="2"),
    "tick not told, in a gap": Witness("1@10 2@- 3@30", ("1@10 (10,29] 3@30",), in_gaps=1),
    "tick not told, perhaps before a gap": Witness("1@10 2@- 3@30", ("1@10 (11,29] 3@30",), lost="2"),
    "tick not told, perhaps after a gap": Witness("1@10 2@- 3@30", ("1@10 (10,28] 3@30",), lost="2"),
    "two ticks not told": Witness("1@10 2@- 3@- 4@40", ("1@10 (10,38] 4@40",), in_gaps=1, lost="3"),
    "ticks not told at the end": Witness(
        "1@10 2@- 3@-", (f"1@10 (10,{TICK_MAX - 1}]",), in_gaps=1, lost="3"
    ),
    "tick told by a delivery": Witness("1@- 2@20", ("1@10 2@20", "(9,10] 2@20"), in_gaps=1),
    "written twice, the last counts": Witness("1@10! 1@10", ("1@10",)),
    "acknowledged twice, the last counts": Witness("1@- 1@10", ("(9,10]",), in_gaps=1),
}  # fmt: skip
