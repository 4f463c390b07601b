"""Names and constants as the text of Spark SQL, which means the same under every setting of the session.

Some settings change what plain text means: `spark.sql.parser.escapedStringLiterals` (are backslashes
escapes?), `spark.sql.variable.substitute` (`${name}` is replaced everywhere, also inside quotes),
`spark.sql.session.timeZone` and ANSI mode. So text that any of them could touch is written as the bytes of
its UTF-8, an instant as its microseconds, and a number with the letter of its type.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from math import isfinite

from tidemark.errors import TranslationError
from tidemark.message.codec.scalars import microseconds
from tidemark.message.types import Atomic, Path, path_text

#: Text that means itself between single quotes, under every setting.
_PLAIN = re.compile(r"[ !#%&()*+,\-./0-9:;<=>?@A-Z\[\]^_a-z|~]*")


def column_text(path: Path) -> str:
    """A column, or a field in a column that is a struct. Raises TranslationError for a name with `${`."""
    if any("${" in name for name in path):
        raise TranslationError(
            f"{path_text(path)}: Spark would take `${{` in a name for a variable of its own"
        )
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def string_text(value: str) -> str:
    """A STRING. Raises TranslationError if the text is not valid Unicode."""
    if _PLAIN.fullmatch(value):
        return f"'{value}'"
    try:
        return f"CAST({bytes_text(value.encode())} AS STRING)"
    except UnicodeEncodeError:
        raise TranslationError(f"{value!r} is not valid Unicode; no string of Spark's equals it") from None


def bytes_text(value: bytes) -> str:
    """A BINARY."""
    return f"X'{value.hex()}'"


def long_text(value: int) -> str:
    """A BIGINT."""
    return f"{value}L"


def double_text(value: float) -> str:
    """A DOUBLE, with the shortest digits that are parsed as exactly this value."""
    return f"{value!r}D" if isfinite(value) else f"CAST('{value!r}' AS DOUBLE)"


def decimal_text(value: Decimal, type_: Atomic) -> str:
    """A DECIMAL of this type, which must hold `value` without rounding."""
    return f"CAST('{value:f}' AS {decimal_type(type_)})"


def decimal_type(type_: Atomic) -> str:
    """The name of a decimal type in Spark SQL."""
    return f"DECIMAL({type_.precision}, {type_.scale})"


def timestamp_text(value: datetime) -> str:
    """A TIMESTAMP."""
    return f"timestamp_micros({long_text(microseconds(value))})"
