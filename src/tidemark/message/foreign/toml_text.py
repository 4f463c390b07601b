"""read_toml: TOML that came from outside, read in time that is linear in its length.

`tomllib` takes quadratic time for a long dotted key, and Python prints no integer of thousands of digits. So
the text is looked at before it is parsed: one pass takes strings and comments out, another counts the parts
of each key and the characters of each key and number. Every topology and access document goes through here.

A document of a mebibyte takes up to a second. The thread that reads one of those that come over connections
rests (`message.codec.rest`): `tomllib` looks at one character after the other, so the text that it is given
counts the looks.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, SupportsIndex

from tidemark.message.codec.rest import Rest, no_rest, resting

#: Parts of a dotted key, or of the name of a table: documents of brokers have at most four.
KEY_PARTS_MAX = 8
#: Characters of a key without quotes, or of a number; a dotted key counts as a whole.
BARE_CHARACTERS_MAX = 1_024

#: Strings and comments, as `tomllib` sees them. A string that does not end reaches to the end of its line or
#: of the text, where `tomllib` stops too. No part gives back what it took, so one pass is linear.
_OPAQUE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)'''
    r"""|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"""
    r"""|"(?:[^"\\\n]|\\.)*+"?"""
    r"""|'[^'\n]*+'?"""
    r"""|(#)[^\n]*+""",
    re.DOTALL,
)
#: What begins a string or a comment; to look for that alone takes a tenth of the time.
_MARK = re.compile(r"""["'#]""")
#: A key or a value, with what stands around it, up to the next one.
_PIECE = re.compile(r"[^\n=,\[\]{}]++")
#: Characters that `tomllib` looks at between two calls of a `Rest`.
LOOKS = 128


def read_toml(text: str, bytes_max: int, rest: Rest = no_rest) -> dict[str, Any]:
    """Return what TOML of at most `bytes_max` bytes says; ValueError, which says why, for anything else."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it has half a surrogate, which is no Unicode text") from None
    if size > bytes_max:
        raise ValueError(f"it has {size} bytes, and at most {bytes_max} are allowed")
    _check_keys(text, rest)
    try:
        return tomllib.loads(text if rest is no_rest else _RestingText.of(text, rest))
    except RecursionError:
        raise ValueError("it nests too deeply") from None


class _RestingText(str):
    """A text whose reader rests."""

    __slots__ = ("_looks", "_rest")
    _looks: int
    _rest: Rest

    @classmethod
    def of(cls, text: str, rest: Rest) -> _RestingText:
        """Returns the same text."""
        self = cls(text)
        self._rest = rest
        self._looks = 0
        return self

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> _RestingText:
        """Returns such a text, too."""
        return _RestingText.of(super().replace(old, new, count), self._rest)

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        """Returns characters, maybe after a rest."""
        self._looks += 1
        if not self._looks % LOOKS:
            self._rest()
        return super().__getitem__(at)


def _check_keys(text: str, rest: Rest) -> None:
    """Raise ValueError for a key of too many parts, or for a key or a number that is too long."""
    for found in resting(_PIECE.finditer(_bare(text, rest)), rest):
        piece = found.group()
        if piece.count(".") >= KEY_PARTS_MAX:
            raise ValueError(f"the key {piece.strip()[:40]}... has more than {KEY_PARTS_MAX} parts")
        if len(piece) > BARE_CHARACTERS_MAX and len(piece.strip()) > BARE_CHARACTERS_MAX:
            raise ValueError(
                f"{piece.strip()[:40]}... is a key or a number of more than {BARE_CHARACTERS_MAX} characters"
            )


def _bare(text: str, rest: Rest) -> str:
    """Return the text without comments, and with one quotation mark for each string."""
    pieces: list[str] = []
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        opaque = _OPAQUE.match(text, mark.start())
        assert opaque is not None
        pieces += (text[at : mark.start()], "" if opaque[1] else '"')
        at = opaque.end()
        rest()
    return "".join(pieces) + text[at:]
