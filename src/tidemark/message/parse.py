"""The schema language: text to natural types, errors with line and column (gryphon-scalability IV.B).

    schema     := type (';'? definition)*  |  definition (';'? definition)*
    definition := name ('.' name)* ':' type           the first one is the root
    type       := core '?'*
    core       := 'boolean' | 'int' | ... | 'decimal' ('(' digits ',' digits ')')? | 'dynamic'
                | '[' (field (',' field)*)? ']'  |  '*(' type ')*'  |  '{' field ('|' field)* '}'
                | name ('.' name)*                    a reference to a named schema
    field      := (name ':')? type
    name       := identifier | "anything in double quotes"

`#` and `//` start a comment. `T?` is short for `{ [] | T }`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from string import ascii_letters, digits
from typing import NoReturn

from tidemark.errors import SchemaSyntaxError
from tidemark.message.codec.rest import REST_EVERY, Rest, no_rest
from tidemark.message.text import KEYWORDS
from tidemark.message.types import (
    DECIMAL,
    NAME_BYTES_MAX,
    NESTING_MAX,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    decimal,
    name_problem,
    optional,
)

SCHEMA_TEXT_CHARS_MAX = 65_536

#: A name, a quoted name, digits, a mark, a comment, or a character that has no place in a schema.
_TOKEN = re.compile(
    r"""[A-Za-z_][A-Za-z0-9_]*
      | "(?:[^"\n]|"")*"
      | [0-9]+
      | \*\( | \)\* | [\[\]{}|,:;?().]
      | \#[^\n]* | //[^\n]*
      | \S""",
    re.VERBOSE,
)
#: The tokens of one character that have a place in a schema; comments are left out before.
_SHORT_TOKENS = frozenset(ascii_letters + digits + "_[]{}|,:;?().")
_OPENING, _CLOSING = frozenset(("[", "{", "*(")), frozenset(("]", "}", ")*"))
#: keyword -> its type, but for `decimal`, which may have numbers behind it; all schemas share these types
_ATOMIC = {kind.value: Atomic(kind) for kind in Kind if kind is not Kind.DECIMAL}
_OPTIONAL = {keyword: optional(item) for keyword, item in _ATOMIC.items()}


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """The types that a text describes, with references not resolved yet."""

    #: name of the root, "" if it has none
    name: str
    root: Type
    definitions: dict[str, Type]


def parse(text: str, rest: Rest = no_rest) -> ParsedSchema:
    """The schema that a text describes; SchemaSyntaxError with line and column of the first mistake."""
    if len(text) > SCHEMA_TEXT_CHARS_MAX:
        raise SchemaSyntaxError(f"a schema has at most {SCHEMA_TEXT_CHARS_MAX} characters", line=1, column=1)
    return _SchemaParser(text, rest).schema()


def parse_type(text: str) -> Type:
    """The type that a text describes; SchemaSyntaxError also if the text defines named schemas."""
    parsed = parse(text)
    if parsed.definitions:
        raise SchemaSyntaxError("a single type was expected, not named schemas", line=1, column=1)
    return parsed.root


def defines_names(text: str) -> bool:
    """Return whether a text defines named schemas, which may make much of a little text.

    False says nothing of a text that cannot be parsed.
    """
    depth = 0
    for token in _TOKEN.findall(text):
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif token == ":" and not depth:
            return True
    return False


class _SchemaParser:
    """Reads the tokens of one text by recursive descent: a method for each rule of the grammar.

    A broker parses schemas of thousands of fields for whoever declares them, so a token is its text and no
    more. What kind it is shows in its first character; where it stands is found out when that is wrong.
    """

    def __init__(self, text: str, rest: Rest) -> None:
        self._text = text
        self._rest = rest
        #: the tokens, and two empty ones for the end: a rule looks at most one token ahead
        self._tokens = [*self._scan(), "", ""]
        #: the place of the next token in `_tokens`
        self._at = 0
        self._depth = 0

    def schema(self) -> ParsedSchema:
        definitions: dict[str, Type] = {}
        name, root = "", None
        if not self._at_definition():
            root = self._type()
        while True:
            self._skip(";")
            if not self._tokens[self._at]:
                break
            if root is not None and not self._at_definition():
                self._fail("expected the end, or `name:` and another schema")
            self._definition(definitions)
        if root is None:
            if not definitions:
                self._fail("expected a schema, found nothing")
            name = next(iter(definitions))
            root = Reference(name)
        return ParsedSchema(name, root, definitions)

    def _definition(self, definitions: dict[str, Type]) -> None:
        start = self._at
        name = self._dotted_name()
        if name in definitions:
            self._fail(f"the schema {name!r} is defined twice", start)
        if name in KEYWORDS:
            self._fail(f"{name!r} is a type of the language: choose another name", start)
        self._expect(":")
        definitions[name] = self._type()

    def _type(self) -> Type:
        tokens, at = self._tokens, self._at
        if self._depth > NESTING_MAX:
            self._fail(f"nested deeper than {NESTING_MAX} levels")
        item: Type | None
        if tokens[at + 1] == "?" and (item := _OPTIONAL.get(tokens[at])) is not None:
            self._at = at + 2
        elif (item := _ATOMIC.get(tokens[at])) is not None:
            self._at = at + 1
        else:
            self._depth += 1
            item = self._core()
            self._depth -= 1
        while self._skip("?"):
            item = optional(item)
        return item

    def _core(self) -> Type:
        """A type that is more than one keyword."""
        start = self._at
        token = self._tokens[start]
        match token:
            case "[":
                return Tuple(self._fields("[", ",", "]", "tuple"))
            case "{":
                cases = self._fields("{", "|", "}", "variant")
                if not cases:
                    self._fail("a variant has at least one case", start)
                return Variant(cases)
            case "*(":
                self._at += 1
                item = self._type()
                self._expect(")*")
                return List(item)
            case "dynamic":
                self._at += 1
                return Dynamic()
            case Kind.DECIMAL.value:
                self._at += 1
                return self._decimal(start)
        if _is_name(token):
            return Reference(self._dotted_name())
        self._fail("expected a type: a keyword like `int`, `[`, `*(`, `{`, or the name of a schema")

    def _decimal(self, start: int) -> Atomic:
        if not self._skip("("):
            return DECIMAL
        precision = self._digits("the number of digits")
        self._expect(",")
        scale = self._digits("the number of digits after the point")
        self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            self._fail("a decimal has 1 to 38 digits, of which 0 to all stand after the point", start)
        return decimal(precision, scale)

    def _fields(self, opening: str, separator: str, closing: str, what: str) -> tuple[Field, ...]:
        self._expect(opening)
        fields: list[Field] = []
        seen: set[str] = set()
        if self._skip(closing):
            return ()
        tokens = self._tokens
        while True:
            start = self._at
            field = self._field()
            if field.name and field.name in seen:
                self._fail(f"the {what} has {field.name!r} twice", start)
            seen.add(field.name)
            fields.append(field)
            if not len(fields) % REST_EVERY:
                self._rest()
            after = tokens[self._at]
            if after not in (separator, closing):
                self._fail(f"expected `{separator}` or `{closing}` after a part of the {what}")
            self._at += 1
            if after == closing:
                return tuple(fields)

    def _field(self) -> Field:
        tokens, at = self._tokens, self._at
        if tokens[at + 1] == ":" and _is_name(tokens[at]):
            name = self._name()
            self._at += 1
            return Field(name, self._type())
        return Field("", self._type())

    def _at_definition(self) -> bool:
        tokens, at = self._tokens, self._at
        while _is_name(tokens[at]):
            if tokens[at + 1] != ".":
                return tokens[at + 1] == ":"
            at += 2
        return False

    def _dotted_name(self) -> str:
        parts = [self._name()]
        while self._skip("."):
            parts.append(self._name())
        return ".".join(parts)

    def _name(self) -> str:
        start = self._at
        token = self._tokens[start]
        self._at = start + 1
        if not _is_name(token):
            self._fail("expected a name", start)
        if token[0] != '"' and len(token) <= NAME_BYTES_MAX:
            return token
        name = token if token[0] != '"' else token[1:-1].replace('""', '"')
        problem = name_problem(name)
        if problem:
            self._fail(problem, start)
        return name

    def _digits(self, what: str) -> int:
        token = self._tokens[self._at]
        if not token.isdigit() or len(token) > 3:
            self._fail(f"expected {what}", self._at)
        self._at += 1
        return int(token)

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._fail(f"expected `{mark}`")

    def _skip(self, mark: str) -> bool:
        if self._tokens[self._at] == mark:
            self._at += 1
            return True
        return False

    def _scan(self) -> list[str]:
        """The tokens of the text, without comments; SchemaSyntaxError if a character has no place there."""
        tokens: list[str] = _TOKEN.findall(self._text)
        if "#" in self._text or "//" in self._text:
            tokens = [token for token in tokens if not _is_comment(token)]
        misplaced = {token for token in {*tokens} if len(token) == 1} - _SHORT_TOKENS
        if misplaced:
            at = next(at for at, token in enumerate(tokens) if token in misplaced)
            reason = f"the character {tokens[at]!r} has no place in a schema"
            self._fail_at(at, "a quoted name must end on its line" if tokens[at] == '"' else reason)
        return tokens

    def _fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Raise SchemaSyntaxError about the token at a place, or about the next one, which is unexpected."""
        if at is None:
            found = self._tokens[self._at]
            reason += f", found `{found}`" if found else ", found the end of the text"
        self._fail_at(self._at if at is None else at, reason)

    def _fail_at(self, at: int, reason: str) -> NoReturn:
        found = (token for token in _TOKEN.finditer(self._text) if not _is_comment(token.group()))
        token = next(islice(found, at, None), None)
        start = token.start() if token is not None else len(self._text)
        line = self._text.count("\n", 0, start) + 1
        column = start - (self._text.rfind("\n", 0, start) + 1) + 1
        raise SchemaSyntaxError(reason, line=line, column=column)


def _is_name(token: str) -> bool:
    return token.isidentifier() or token[:1] == '"'


def _is_comment(token: str) -> bool:
    return token[:1] == "#" or token[:2] == "//"
