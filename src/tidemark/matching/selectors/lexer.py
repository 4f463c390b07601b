"""The lexer: the text of a selector to tokens, lazily and in one pass.

A dotted path is one token, whichever of its names are quoted; so is a string, and X'...'. Symbols of other
languages (`!=`, `&&`) raise an error that names the word to use instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidemark.errors import SelectorSyntaxError
from tidemark.matching.selectors.grammar import continues_name, keyword, starts_name
from tidemark.message.types import Path

_SPACE = " \t\n\r\f"
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SYMBOLS = frozenset(("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ","))
_FOREIGN = {"!=": "<>", "==": "=", "=>": ">=", "=<": "<=", "&&": "AND", "||": "OR", "!": "NOT"}


class TokenKind(Enum):
    """What a token is."""

    NAME = "name"
    KEYWORD = "keyword"
    NUMBER = "number"
    STRING = "string"
    BYTES = "bytes"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word, literal or symbol of a selector."""

    kind: TokenKind
    #: the characters as written
    text: str
    position: int
    #: the keyword, in capitals, or the symbol; "" for tokens of other kinds
    word: str = ""
    #: what is between the quotes of a string or X'...', with doubled quotes made single
    content: str = ""
    #: the path of a name
    parts: Path = ()

    def __str__(self) -> str:
        """The token as error messages quote it."""
        if self.kind is TokenKind.END:
            return "the end of the selector"
        return f"`{self.text}`" if len(self.text) <= 40 else f"`{self.text[:40]}...`"


def tokens_of(text: str) -> Iterator[Token]:
    """Yields every token of `text` in order, then one of kind END; SelectorSyntaxError for what is none."""
    index = 0
    while index < len(text):
        if text[index] in _SPACE:
            index += 1
        else:
            token = _token(text, index)
            yield token
            index += len(token.text)
    yield Token(TokenKind.END, "", len(text))


def _token(text: str, start: int) -> Token:
    first = text[start]
    if first == "'":
        stop = _quote_end(text, start)
        return Token(TokenKind.STRING, text[start:stop], start, content=_unquoted(text[start:stop]))
    if first in "xX" and text.startswith("'", start + 1):
        stop = _quote_end(text, start + 1)
        return Token(TokenKind.BYTES, text[start:stop], start, content=text[start + 2 : stop - 1])
    if first == '"' or starts_name(first):
        return _name(text, start)
    number = _NUMBER.match(text, start)
    return _number(text, number) if number else _symbol(text, start)


def _name(text: str, start: int) -> Token:
    """The token of a keyword, or of a whole path."""
    part, stop = _part(text, start)
    word = keyword(text[start:stop])
    if word:
        return Token(TokenKind.KEYWORD, text[start:stop], start, word)
    parts = [part]
    while text.startswith(".", stop) and _starts_part(text, stop + 1):
        part, stop = _part(text, stop + 1)
        parts.append(part)
    return Token(TokenKind.NAME, text[start:stop], start, parts=tuple(parts))


def _starts_part(text: str, index: int) -> bool:
    return index < len(text) and (text[index] == '"' or starts_name(text[index]))


def _part(text: str, start: int) -> tuple[str, int]:
    """One name of a path, and the index after its last character."""
    if text[start] == '"':
        stop = _quote_end(text, start)
        if stop - start == 2:
            raise SelectorSyntaxError("a name between double quotes is empty", position=start, text=text)
        return _unquoted(text[start:stop]), stop
    stop = start + 1
    while stop < len(text) and continues_name(text[stop]):
        stop += 1
    return text[start:stop], stop


def _number(text: str, found: re.Match[str]) -> Token:
    stop = found.end()
    if stop < len(text) and continues_name(text[stop]):
        reason = f"a number runs into `{text[stop]}`: numbers are decimal and have no suffix"
        raise SelectorSyntaxError(reason, position=stop, text=text)
    return Token(TokenKind.NUMBER, found[0], found.start())


def _symbol(text: str, start: int) -> Token:
    for candidate in (text[start : start + 2], text[start]):
        if candidate in _FOREIGN:
            reason = f"`{candidate}` is not part of a selector; write `{_FOREIGN[candidate]}`"
            raise SelectorSyntaxError(reason, position=start, text=text)
        if candidate in _SYMBOLS:
            return Token(TokenKind.SYMBOL, candidate, start, candidate)
    if text[start] == ".":
        reason = "`.` stands between two names; a keyword or an odd name goes in double quotes"
    else:
        reason = f"no selector has the character {text[start]!r} outside quotes"
    raise SelectorSyntaxError(reason, position=start, text=text)


def _quote_end(text: str, start: int) -> int:
    """The index after the quote that closes the one at `start`; a doubled quote does not close it."""
    quote, stop = text[start], start + 1
    while True:
        stop = text.find(quote, stop)
        if stop < 0:
            raise SelectorSyntaxError(f"the quote {quote} is never closed", position=start, text=text)
        if not text.startswith(quote, stop + 1):
            return stop + 1
        stop += 2


def _unquoted(quoted: str) -> str:
    quote = quoted[0]
    return quoted[1:-1].replace(quote * 2, quote)
