"""Parameters: `{user}` and `{claims.x}` in names and patterns, `:user` and `:claims.x` in rules.

A principal that lacks a claim has none of the names and sees none of the events that a text with the claim
speaks of: a missing value never widens what somebody may do.
"""

from __future__ import annotations

import math
import re

from tidemark.access.principal import Claim, Principal
from tidemark.errors import AccessError

_IN_NAME = re.compile(r"\{([^{}]*)\}")
_IN_RULE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|:([A-Za-z_][A-Za-z0-9_.]*)")
_LEVEL = re.compile(r"[^.*>\s\x00-\x1f\x7f]+")


def parameters_of_name(text: str) -> set[str]:
    """Return the parameters of a name or pattern. AccessError if one is neither user nor claims.NAME."""
    return {_checked(each, text) for each in _IN_NAME.findall(text)}


def parameters_of_rule(text: str) -> set[str]:
    """Return the parameters of a rule. AccessError if one is neither user nor claims.NAME."""
    return {_checked(name, text) for name in (each[1] for each in _IN_RULE.finditer(text)) if name}


def name_for(text: str, principal: Principal, *, is_topic: bool = False) -> str | None:
    """Return a name or pattern with the values of its parameters; None if the principal lacks a claim.

    Also None if a value has a wildcard in it, which would stand for the names of others, and with `is_topic`
    if a value is no level of a topic's name.
    """
    parts: list[str] = []
    at = 0
    for found in _IN_NAME.finditer(text):
        value = _value(found[1], principal)
        if value is None or isinstance(value, float | bool):
            return None
        filling = str(value)
        if "*" in filling or (is_topic and not _LEVEL.fullmatch(filling)):
            return None
        parts += (text[at : found.start()], filling)
        at = found.end()
    return "".join((*parts, text[at:]))


def pattern_for(text: str, principal: Principal) -> str:
    """Return a topic pattern with the values of its parameters, where a value that is missing is any level.

    For patterns that take something away: without a claim they take it from more topics, not from fewer.
    """
    levels = (name_for(level, principal, is_topic=True) for level in _levels(text))
    return ".".join("*" if level is None else level for level in levels)


def _levels(text: str) -> list[str]:
    """Return the levels of a pattern; a dot inside a parameter's braces ends none."""
    parts = _IN_NAME.sub(lambda found: found[0].replace(".", "\0"), text).split(".")
    return [part.replace("\0", ".") for part in parts]


def rule_for(text: str, principal: Principal) -> str | None:
    """Return a rule with its parameters as literals; None if the principal lacks a claim."""
    parts: list[str] = []
    at = 0
    for found in _IN_RULE.finditer(text):
        if found[1] is None:
            continue  # a string or a quoted name
        literal = _literal(_value(found[1], principal))
        if literal is None:
            return None
        parts += (text[at : found.start()], literal)
        at = found.end()
    return "".join((*parts, text[at:]))


def rule_with_fields(text: str) -> str:
    """Return a rule with its parameters as names of fields, each beginning with a colon."""
    return _IN_RULE.sub(lambda found: found[0] if found[1] is None else f'":{found[1]}"', text)


def wildcard_matches(pattern: str, name: str) -> bool:
    """Return whether a name is of a pattern, in which each `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _checked(name: str, text: str) -> str:
    if name == "user" or (name.startswith("claims.") and len(name) > len("claims.")):
        return name
    raise AccessError(f"{text!r} has the parameter {name!r}: there are user and claims.NAME")


def _value(parameter: str, principal: Principal) -> Claim | None:
    if parameter == "user":
        return principal.name
    return principal.claims.get(parameter.removeprefix("claims."))


def _literal(value: Claim | None) -> str | None:
    """Return a value as a selector writes it; None if it cannot be written."""
    match value:
        case None:
            return None
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float() if not math.isfinite(value):
            return None
        case _:
            return f"({value!r})" if value < 0 else repr(value)
