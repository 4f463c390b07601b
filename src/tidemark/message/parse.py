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
from typing import NoReturn

from tidemark.errors import SchemaSyntaxError
from tidemark.message.text import KEYWORDS
from tidemark.message.types import (
    DECIMAL,
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

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*|//[^\n]*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<quoted>"(?:[^"\n]|"")*")
      | (?P<digits>[0-9]+)
      | (?P<mark>\*\(|\)\*|[\[\]{}|,:;?().])""",
    re.VERBOSE,
)
_ATOMIC = {kind.value: Atomic(kind) for kind in Kind if kind is not Kind.DECIMAL}


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """The types that a text describes, with references not resolved yet."""

    #: name of the root, "" if it has none
    name: str
    root: Type
    definitions: dict[str, Type]


def parse(text: str) -> ParsedSchema:
    """The schema that a text describes; SchemaSyntaxError with line and column of the first mistake."""
    if len(text) > SCHEMA_TEXT_CHARS_MAX:
        raise SchemaSyntaxError(f"a schema has at most {SCHEMA_TEXT_CHARS_MAX} characters", line=1, column=1)
    return _SchemaParser(text).schema()


def parse_type(text: str) -> Type:
    """The type that a text describes; SchemaSyntaxError also if the text defines named schemas."""
    parsed = parse(text)
    if parsed.definitions:
        raise SchemaSyntaxError("a single type was expected, not named schemas", line=1, column=1)
    return parsed.root


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # name, quoted, digits, mark, end
    text: str
    start: int


class _SchemaParser:
    """Reads the tokens of one text by recursive descent: a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._at = 0
        self._depth = 0

    def schema(self) -> ParsedSchema:
        definitions: dict[str, Type] = {}
        name, root = "", None
        if not self._at_definition():
            root = self._type()
        while True:
            self._skip(";")
            if self._peek().kind == "end":
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
        start = self._peek()
        name = self._dotted_name()
        if name in definitions:
            self._fail(f"the schema {name!r} is defined twice", start)
        if name in KEYWORDS:
            self._fail(f"{name!r} is a type of the language: choose another name", start)
        self._expect(":")
        definitions[name] = self._type()

    def _type(self) -> Type:
        self._depth += 1
        if self._depth > NESTING_MAX + 1:
            self._fail(f"nested deeper than {NESTING_MAX} levels")
        item = self._core()
        while self._skip("?"):
            item = optional(item)
        self._depth -= 1
        return item

    def _core(self) -> Type:
        token = self._peek()
        match token.text if token.kind == "mark" else token.kind:
            case "[":
                return Tuple(self._fields("[", ",", "]", "tuple"))
            case "{":
                cases = self._fields("{", "|", "}", "variant")
                if not cases:
                    self._fail("a variant has at least one case", token)
                return Variant(cases)
            case "*(":
                self._next()
                item = self._type()
                self._expect(")*")
                return List(item)
            case "name" if token.text in KEYWORDS:
                return self._keyword()
            case "name" | "quoted":
                return Reference(self._dotted_name())
        self._fail("expected a type: a keyword like `int`, `[`, `*(`, `{`, or the name of a schema")

    def _keyword(self) -> Type:
        token = self._next()
        if token.text == "dynamic":
            return Dynamic()
        if token.text != Kind.DECIMAL.value:
            return _ATOMIC[token.text]
        if not self._skip("("):
            return DECIMAL
        precision = self._digits("the number of digits")
        self._expect(",")
        scale = self._digits("the number of digits after the point")
        self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            self._fail("a decimal has 1 to 38 digits, of which 0 to all stand after the point", token)
        return decimal(precision, scale)

    def _fields(self, opening: str, separator: str, closing: str, what: str) -> tuple[Field, ...]:
        self._expect(opening)
        fields: list[Field] = []
        seen: set[str] = set()
        if self._skip(closing):
            return ()
        while True:
            token = self._peek()
            field = self._field()
            if field.name and field.name in seen:
                self._fail(f"the {what} has {field.name!r} twice", token)
            seen.add(field.name)
            fields.append(field)
            if self._skip(closing):
                return tuple(fields)
            if not self._skip(separator):
                self._fail(f"expected `{separator}` or `{closing}` after a part of the {what}")

    def _field(self) -> Field:
        token, after = self._peek(), self._peek(1)
        if token.kind in ("name", "quoted") and after.text == ":" and after.kind == "mark":
            name = self._name()
            self._expect(":")
            return Field(name, self._type())
        return Field("", self._type())

    def _at_definition(self) -> bool:
        ahead = 0
        while self._peek(ahead).kind in ("name", "quoted"):
            after = self._peek(ahead + 1)
            if after.kind != "mark" or after.text not in (".", ":"):
                return False
            if after.text == ":":
                return True
            ahead += 2
        return False

    def _dotted_name(self) -> str:
        parts = [self._name()]
        while self._skip("."):
            parts.append(self._name())
        return ".".join(parts)

    def _name(self) -> str:
        token = self._next()
        if token.kind not in ("name", "quoted"):
            self._fail("expected a name", token)
        name = token.text if token.kind == "name" else token.text[1:-1].replace('""', '"')
        problem = name_problem(name)
        if problem:
            self._fail(problem, token)
        return name

    def _digits(self, what: str) -> int:
        token = self._next()
        if token.kind != "digits" or len(token.text) > 3:
            self._fail(f"expected {what}", token)
        return int(token.text)

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._fail(f"expected `{mark}`")

    def _skip(self, mark: str) -> bool:
        token = self._peek()
        if token.kind == "mark" and token.text == mark:
            self._at += 1
            return True
        return False

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                what = "a quoted name must end on its line" if self._text[at] == '"' else None
                self._fail_at(at, what or f"the character {self._text[at]!r} has no place in a schema")
            if found.lastgroup != "skip":
                assert found.lastgroup is not None
                tokens.append(_Token(found.lastgroup, found.group(), at))
            at = found.end()
        tokens.append(_Token("end", "", len(self._text)))
        return tokens

    def _fail(self, reason: str, token: _Token | None = None) -> NoReturn:
        found = token or self._peek()
        if token is None and found.kind == "end":
            reason += ", found the end of the text"
        elif token is None:
            reason += f", found `{found.text}`"
        self._fail_at(found.start, reason)

    def _fail_at(self, at: int, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise SchemaSyntaxError(reason, line=line, column=column)
