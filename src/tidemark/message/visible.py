"""Text from strangers, made safe to show: characters that act on a terminal or cheat a reader are spelt out.

A name, a reason or the text of an event may hold escape sequences that clear a screen, line ends that forge
lines of a log, or marks that turn the direction of writing, so that a reader sees another text than a program
does. `visible` writes such a character as Python would write it in a string. Names may not have any.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: C0 and DEL, C1, the separators of lines and paragraphs, and the marks, embeddings, overrides and isolates
#: of the direction of writing.
_CODES = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    # Halves of surrogates have no UTF-8: printing one would raise an error.
    *range(0xD800, 0xE000),
)
_SPELT = {code: repr(chr(code))[1:-1] for code in _CODES}
_CONTROLS = frozenset(map(chr, _CODES))
#: JSON escapes C0 by itself, and its own line ends are no part of a text.
_ESCAPED = {code: f"\\u{code:04x}" for code in _CODES if code >= 0x7F}


def visible(text: str) -> str:
    """The text with every control character spelt out, such as \\n, \\x1b or \\u202e: always one line."""
    # Most texts are printable, which is found out at once; that a text is not does not say that it has one.
    return text if text.isprintable() else text.translate(_SPELT)


def visible_lines(text: str) -> str:
    """As `visible`, but line ends stay; a line after the first is indented, so that it is seen to belong."""
    first, *rest = text.split("\n")
    return "\n".join([visible(first), *("  " + visible(line.removeprefix("  ")) for line in rest)])


def visible_json(
    value: object, *, indent: int | None = None, default: Callable[[Any], object] | None = None
) -> str:
    """The value as JSON, on one line unless it is indented, in which control characters are escaped.

    A program reads what the value was; a terminal that the JSON is printed on does nothing but show it.
    """
    return json.dumps(value, ensure_ascii=False, indent=indent, default=default).translate(_ESCAPED)


def control_problem(name: str) -> str | None:
    """Why `name` cannot be the name of anything: it has a control character; None if it has none."""
    if name.isprintable() or _CONTROLS.isdisjoint(name):
        return None
    found = next(character for character in name if character in _CONTROLS)
    return f"a name cannot have the control character {_SPELT[ord(found)]} in it"
