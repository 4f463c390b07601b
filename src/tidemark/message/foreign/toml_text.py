"""read_toml: TOML that came from outside, read in time that is linear in its length.

`tomllib` takes quadratic time for a long dotted key, and Python prints no integer of thousands of digits. So
the text is looked at before it is parsed: one pass takes strings and comments out, another counts the parts
of each key and the characters of each key and number. Every topology and access document goes through here.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

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
#: What stands between two keys or values.
_BETWEEN = re.compile(r"[\n=,\[\]{}]")


def read_toml(text: str, bytes_max: int) -> dict[str, Any]:
    """Return what TOML of at most `bytes_max` bytes says; ValueError, which says why, for anything else."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it has half a surrogate, which is no Unicode text") from None
    if size > bytes_max:
        raise ValueError(f"it has {size} bytes, and at most {bytes_max} are allowed")
    _check_keys(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _check_keys(text: str) -> None:
    """Raise ValueError for a key of too many parts, or for a key or a number that is too long."""
    bare = _OPAQUE.sub(lambda found: "" if found[1] else '"', text)
    for piece in _BETWEEN.split(bare):
        if piece.count(".") >= KEY_PARTS_MAX:
            raise ValueError(f"the key {piece.strip()[:40]}... has more than {KEY_PARTS_MAX} parts")
        if len(piece) > BARE_CHARACTERS_MAX and len(piece.strip()) > BARE_CHARACTERS_MAX:
            raise ValueError(
                f"{piece.strip()[:40]}... is a key or a number of more than {BARE_CHARACTERS_MAX} characters"
            )
