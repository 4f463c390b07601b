"""TOML from outside: what it costs is in proportion to its length, and what would cost more is refused."""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import pytest

from tidemark.access.document import AccessDocument
from tidemark.errors import AccessError, ConfigError
from tidemark.message.foreign import toml_text
from tidemark.message.foreign.toml_text import (
    BARE_CHARACTERS_MAX,
    KEY_PARTS_MAX,
    LOOKS,
    read_toml,
)
from tidemark.node.topology.file import parse_topology

DOTTED = "brokers" + ".a" * 16_000 + " = 1"
MAX = 1 << 20


def not_reached(_text: str) -> Any:
    raise AssertionError("tomllib was given a text that it takes quadratic time for")


@pytest.mark.parametrize(
    "text",
    [
        DOTTED,
        f"[{DOTTED[:-4]}]\n",
        f"[[{DOTTED[:-4]}]]\n",
        f"x = {{{DOTTED}}}",
        f"x = [{{y = {{{DOTTED}}}}}]",
        DOTTED.replace(".", " \t. "),
        DOTTED.replace("a", "'a.b'"),
        DOTTED.replace("a", '"a\\"#"'),
        f'x = """a"""""\n{DOTTED}',
        f"x = '''a'''''\n{DOTTED}",
        f'x = """a\\"""b"""\n{DOTTED}',
        f"x = '\"'\n{DOTTED}",
        f'x = "\'"\r\n{DOTTED}',
        f"# '''\n{DOTTED}",
        f"x = '#'\n{DOTTED}",
        "x = 0x" + "f" * 5_000,
        "x = " + "9" * 5_000,
        "x = '\ud800'",
        "x = 1 #" + "x" * MAX,
    ],
)
def test_what_takes_more_than_linear_time_is_refused_before_it_is_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tomllib, "loads", not_reached)
    with pytest.raises(ValueError):
        read_toml(text, MAX)


def test_documents_of_both_kinds_are_read_in_this_way() -> None:
    with pytest.raises(ConfigError, match="more than 8 parts"):
        parse_topology(DOTTED, 1)
    with pytest.raises(AccessError, match="more than 8 parts"):
        AccessDocument.parse(DOTTED)
    with pytest.raises(AccessError, match="characters"):
        AccessDocument.parse("[roles.a]\nquota.subscriptions = " + "9" * 5_000)
    with pytest.raises(ConfigError, match="bytes"):
        parse_topology("#" + "x" * MAX, 1)


@pytest.mark.parametrize(
    "text",
    [
        ".".join("abcdefgh") + " = 1",
        "[a.b.c]\nd.'e.f.g.h.i.j.k.l.m' = 1.5",
        "x = '" + "a." * 5_000 + "'",
        'x = """' + 'a.\\" "" \n' * 500 + '"""""\ny = 1',
        "x = '''" + "a.' '' \n" * 500 + "'''''\ny = 1",
        "# " + "a." * 5_000 + "\nx = [" + "1.5, " * 5_000 + "]",
        " " * 2 * BARE_CHARACTERS_MAX + "\nx = 1",
        "x" * (BARE_CHARACTERS_MAX - 1) + "=1",
        "x = 1979-05-27T07:32:00.999999-07:00",
        "x = [\n  # one's\n  1,\n  # two \"\n]\ny = 'z'",
        'x = "\\"" # \'\ny = "#"',
    ],
)
def test_what_people_write_is_read_as_tomllib_reads_it(text: str) -> None:
    assert read_toml(text, MAX) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("piece", "end"),
    [
        ('\n\\"""', ""),
        ('x = """\n\\', ""),
        ("x = '''\n", ""),
        ("'", ""),
        ('"\\', ""),
        ('""""""', ""),
        ("#'", "\n"),
        (" \t", ""),
        (".'", ""),
        ("[" * 50 + "]" * 50 + ",", ""),
    ],
)
def test_the_look_at_a_text_is_linear_whatever_it_holds(piece: str, end: str) -> None:
    """One pass that takes strings out and never begins twice at the same character, and one that splits."""
    text = 'x = """' + piece * 200 + end
    found = [each.span() for each in toml_text._OPAQUE.finditer(text)]
    # What stands between two finds begins no string and no comment: no find was tried there in vain.
    at = 0
    for begin, upto in [*found, (len(text), len(text))]:
        assert not set("\"'#") & set(text[at:begin])
        at = upto


def parts_of(lines: int) -> int:
    """How many calls reading a document of so many lines makes."""
    text = "[a.b.c.d.e.f.g.h]\n" + "".join(f"k.x.a.b.c.d.e.n{at} = [[{{m = 1}}]]\n" for at in range(lines))
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read_toml(text, MAX)
    finally:
        sys.setprofile(before)
    return calls


def test_twice_as_many_lines_of_the_deepest_keys_take_twice_as_many_calls() -> None:
    assert KEY_PARTS_MAX == 8
    assert parts_of(800) < 2.1 * parts_of(400)


@pytest.mark.parametrize(
    "text",
    [
        "x = [" + "1, " * 20_000 + "]\r\ny = 1",
        "x = [" + "'a', " * 10_000 + "]",
        "".join(f"[brokers.b{at}]\ncell = 'c{at}'  # a comment\n" for at in range(2_000)),
        "\n".join(f"x{at} = 1" for at in range(5_000)),
    ],
)
def test_who_reads_a_long_text_on_a_thread_rests_often(text: str) -> None:
    rests = 0

    def rest() -> None:
        nonlocal rests
        rests += 1

    assert read_toml(text, MAX, rest) == tomllib.loads(text)
    assert rests > len(text) // LOOKS
