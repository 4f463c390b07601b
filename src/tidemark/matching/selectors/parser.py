"""The parser: the text of a selector to its tree.

The grammar is that of JMS selectors, with SQL-92's TIMESTAMP '...' and X'...', quoted and dotted names,
expressions wherever JMS insists on a name, and `_topic MATCHES 'trades.>'`. The parser works by precedence
climbing: an expression at a level is a prefix and all operators that bind at least as tightly. It ignores
types, which `matching.selectors.check` checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn, cast

from tidemark.errors import SelectorLimitError, SelectorSyntaxError, SelectorTypeError, TopicError
from tidemark.matching.selectors.grammar import Level
from tidemark.matching.selectors.lexer import Token, TokenKind, tokens_of
from tidemark.matching.selectors.like import Pattern
from tidemark.matching.selectors.literals import hexadecimal, number, timestamp
from tidemark.matching.selectors.tree import (
    TRUE,
    And,
    Arithmetic,
    ArithmeticOp,
    Between,
    Compare,
    CompareOp,
    Constant,
    FieldRef,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Or,
    TopicMatches,
)
from tidemark.matching.topics import TopicPattern

SELECTOR_CHARACTERS_MAX = 4_096
SELECTOR_TOKENS_MAX = 200
#: Levels of parentheses, NOTs and signs within each other. It bounds the parser's own recursion, too.
NESTING_LEVELS_MAX = 32

#: Selectors whose trees are remembered: a subscription's selector is parsed several times in a row.
PARSED_MAX = 256

_INFIX = {
    "OR": Level.OR,
    "AND": Level.AND,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), Level.PREDICATE),
    **dict.fromkeys(("NOT", "BETWEEN", "IN", "LIKE", "IS"), Level.PREDICATE),
    **dict.fromkeys(("+", "-"), Level.SUM),
    **dict.fromkeys(("*", "/"), Level.PRODUCT),
}


@lru_cache(PARSED_MAX)
def parse(text: str) -> Node:
    """The tree of `text`, TRUE for a blank one; SelectorError, with the position, if it is no selector."""
    if len(text) > SELECTOR_CHARACTERS_MAX:
        reason = f"a selector has at most {SELECTOR_CHARACTERS_MAX} characters, this one has {len(text)}"
        raise SelectorLimitError(reason, position=SELECTOR_CHARACTERS_MAX)
    _refuse_surrogates(text)
    tokens = _tokens(text)
    return _SelectorParser(text, tokens).selector() if len(tokens) > 1 else TRUE


def _refuse_surrogates(text: str) -> None:
    """SelectorSyntaxError for a lone surrogate: no field has one, and it cannot be sent to another broker."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        printable = text.encode(errors="replace").decode()
        reason = "the text is not valid Unicode"
        raise SelectorSyntaxError(reason, position=error.start, text=printable) from None


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    for token in tokens_of(text):
        if len(tokens) == SELECTOR_TOKENS_MAX and token.kind is not TokenKind.END:
            reason = f"a selector has at most {SELECTOR_TOKENS_MAX} words and symbols"
            raise SelectorLimitError(reason, position=token.position, text=text)
        tokens.append(token)
    return tokens


class _SelectorParser:
    """One run over the tokens of one selector."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._index = 0
        self._nesting = 0

    def selector(self) -> Node:
        """The tree of the whole text."""
        node = self._expression(Level.OR)
        if self._token.kind is not TokenKind.END:
            self._unfinished("an operator, AND, OR or the end")
        return node

    # Expressions.

    def _expression(self, level: Level) -> Node:
        """The tree of a prefix and the operators after it that bind at least as tightly as `level`.

        After an operator, only operators that bind no tighter may follow at this level.
        """
        start = self._token.position
        ceiling: int = Level.NOT if self._token.word == "NOT" else Level.ATOM
        node = self._prefix(level)
        while (operator := self._infix_level()) and level <= operator <= ceiling:
            node = self._infix(node, operator, start)
            # Predicates do not associate: `a < b < c` ends here.
            ceiling = operator - 1 if operator is Level.PREDICATE else operator
        return node

    def _infix_level(self) -> Level | None:
        return Level.PREDICATE if self._at_word("MATCHES") else _INFIX.get(self._token.word)

    def _infix(self, left: Node, level: Level, start: int) -> Node:
        """The tree of `left`, the operator at the current token, and the operand after it."""
        match level:
            case Level.OR:
                return Or(self._chain(left, "OR", Level.AND), start)
            case Level.AND:
                return And(self._chain(left, "AND", Level.NOT), start)
            case Level.PREDICATE:
                return self._predicate(left, start)
            case _:
                op = cast(ArithmeticOp, self._advance().word)
                return Arithmetic(op, left, self._expression(Level(level + 1)), start)

    def _chain(self, first: Node, word: str, level: Level) -> tuple[Node, ...]:
        operands = [first]
        while self._accept(word):
            operands.append(self._expression(level))
        return tuple(operands)

    def _prefix(self, level: Level) -> Node:
        token = self._token
        if token.word == "NOT" and level <= Level.NOT:
            self._advance()
            return Not(self._nested(Level.NOT, token), token.position)
        if self._at_sign():
            return self._signed(self._advance())
        return self._atom()

    def _nested(self, level: Level, opener: Token) -> Node:
        if self._nesting == NESTING_LEVELS_MAX:
            reason = f"a selector nests at most {NESTING_LEVELS_MAX} deep"
            raise SelectorLimitError(reason, position=opener.position, text=self._text)
        self._nesting += 1
        node = self._expression(level)
        self._nesting -= 1
        return node

    def _signed(self, sign: Token) -> Node:
        if self._token.kind is TokenKind.NUMBER:
            return self._number(sign)
        operand = self._nested(Level.SIGN, sign)
        if sign.word == "-":
            return Negate(operand, sign.position)
        if not isinstance(operand, FieldRef | Negate | Arithmetic) and not _is_number(operand):
            self._fail("`+` takes a number", operand.position)
        return operand

    def _atom(self) -> Node:
        token = self._token
        if literal := self._literal():
            return literal
        if token.kind is TokenKind.NAME:
            self._advance()
            return FieldRef(token.parts, token.position)
        if self._accept("("):
            node = self._nested(Level.OR, token)
            return node if self._accept(")") else self._unfinished("an operator, AND, OR or `)`")
        return self._expected("a field or a literal")

    # Predicates.

    def _predicate(self, operand: Node, start: int) -> Node:
        token = self._advance()
        negated = token.word == "NOT"
        if negated:
            if self._token.word not in ("BETWEEN", "IN", "LIKE") and not self._at_word("MATCHES"):
                self._expected("BETWEEN, IN or LIKE after NOT")
            token = self._advance()
        match token.word or token.text.upper():
            case "BETWEEN":
                low = self._expression(Level.SUM)
                self._expect("AND", "AND and the upper end of BETWEEN")
                return Between(operand, low, self._expression(Level.SUM), negated, start)
            case "IN":
                return In(operand, self._values(), negated, start)
            case "LIKE":
                return Like(operand, *self._pattern(), negated, start)
            case "IS":
                return self._is_null(operand, start)
            case "MATCHES":
                return self._topic_matches(operand, negated, start)
            case op:
                return Compare(cast(CompareOp, op), operand, self._expression(Level.SUM), start)

    def _values(self) -> tuple[Literal, ...]:
        """The values in the list of IN."""
        self._expect("(", "`(` and the values of IN")
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(")", "`,` or `)`")
        return tuple(values)

    def _value(self) -> Literal:
        if self._at_sign():
            sign = self._advance()
            return self._number(sign) if self._token.kind is TokenKind.NUMBER else self._expected("a number")
        return self._literal() or self._expected("a literal")

    def _pattern(self) -> tuple[str, str]:
        """The pattern and escape character of LIKE."""
        pattern = self._string("a pattern in single quotes")
        if not self._accept("ESCAPE"):
            return pattern.content, ""
        escape = self._string("a character in single quotes")
        if len(escape.content) != 1:
            self._fail("ESCAPE takes exactly one character", escape.position)
        Pattern.compile(pattern.content, escape.content, position=pattern.position, text=self._text)
        return pattern.content, escape.content

    def _is_null(self, operand: Node, start: int) -> IsNull:
        negated = self._accept("NOT")
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        if not isinstance(operand, FieldRef):
            self._fail("IS NULL asks about a field", start)
        return IsNull(operand, negated, start)

    def _topic_matches(self, operand: Node, negated: bool, start: int) -> TopicMatches:
        if operand != FieldRef(("_topic",)):
            self._fail("MATCHES compares the header `_topic` with a topic pattern; text takes LIKE", start)
        pattern = self._string("a topic pattern in single quotes")
        try:
            TopicPattern.parse(pattern.content)
        except TopicError as error:
            self._fail(str(error), pattern.position)
        return TopicMatches(pattern.content, negated, start)

    # Literals.

    def _literal(self) -> Literal | None:
        """The literal without a sign at the current token; None if there is none."""
        token = self._token
        if token.kind is TokenKind.NUMBER:
            return self._number()
        if token.kind is TokenKind.STRING:
            return Literal(self._advance().content, position=token.position)
        if token.kind is TokenKind.BYTES:
            return self._converted(hexadecimal, self._advance().content, token)
        if self._at_timestamp():
            self._advance()
            return self._converted(timestamp, self._advance().content, token)
        if token.word in ("TRUE", "FALSE"):
            return Literal(self._advance().word == "TRUE", position=token.position)
        return None

    def _at_timestamp(self) -> bool:
        """Is the current token TIMESTAMP before a string? It is no keyword: many fields have that name."""
        return self._at_word("TIMESTAMP") and self._tokens[self._index + 1].kind is TokenKind.STRING

    def _at_word(self, word: str) -> bool:
        """Is the current token this word, which is no keyword and so may also be a field's name?"""
        token = self._token
        return token.kind is TokenKind.NAME and token.text.isascii() and token.text.upper() == word

    def _number(self, sign: Token | None = None) -> Literal:
        """The number at the current token.

        A sign becomes part of it, so that the least long can be written.
        """
        token = self._advance()
        digits = "-" + token.text if sign and sign.word == "-" else token.text
        literal = self._converted(number, digits, sign or token)
        return replace(literal, text=digits)

    def _converted(self, convert: Callable[[str], Constant], characters: str, start: Token) -> Literal:
        try:
            return Literal(convert(characters), position=start.position)
        except ValueError as error:
            raise SelectorSyntaxError(str(error), position=start.position, text=self._text) from None
        except OverflowError as error:
            raise SelectorTypeError(str(error), position=start.position, text=self._text) from None

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _advance(self) -> Token:
        token = self._token
        self._index += 1
        return token

    def _at_sign(self) -> bool:
        return self._token.word in ("+", "-")

    def _accept(self, word: str) -> bool:
        found = self._token.word == word
        if found:
            self._advance()
        return found

    def _expect(self, word: str, what: str) -> None:
        if not self._accept(word):
            self._expected(what)

    def _string(self, what: str) -> Token:
        return self._advance() if self._token.kind is TokenKind.STRING else self._expected(what)

    def _expected(self, what: str) -> NoReturn:
        hint = ""
        if self._token.word == "NULL":
            hint = "; nothing equals NULL, test for it with IS NULL or IS NOT NULL"
        elif self._token.text.startswith('"'):
            hint = "; double quotes are for names, text goes in single quotes"
        self._fail(f"expected {what}, found {self._token}{hint}")

    def _unfinished(self, what: str) -> NoReturn:
        """Raise the error for a token that cannot follow a whole expression."""
        if self._infix_level() is Level.PREDICATE:
            self._fail("comparisons do not chain; join them with AND, or use parentheses")
        self._expected(what)

    def _fail(self, reason: str, position: int | None = None) -> NoReturn:
        position = self._token.position if position is None else position
        raise SelectorSyntaxError(reason, position=position, text=self._text)


def _is_number(node: Node) -> bool:
    """Is the node a literal number? Only numbers carry their digits."""
    return isinstance(node, Literal) and bool(node.text)
