"""Checkpoint tokens: their order, their text, and every way the text can be wrong."""

from __future__ import annotations

import json
import pickle
import string
from base64 import urlsafe_b64encode
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.errors import TokenError
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MIN, CheckpointToken
from tidemark.ticks.token_text import PREFIX, TEXT_CHARS_MAX

names = st.one_of(
    st.sampled_from(["p1", "p2", "phb-7/p3", "Zoë", "日本"]), st.text("ab\U0001f600", min_size=1, max_size=5)
)
tick_values = st.one_of(
    st.just(TICK_MIN),
    st.integers(TICK_FIRST, TICK_LAST),
    st.integers(1_763_000_000_000_000, 1_763_000_100_000_000),
)
tokens = st.builds(CheckpointToken, st.dictionaries(names, tick_values, max_size=5))
small = st.builds(CheckpointToken, st.dictionaries(st.sampled_from("pqr"), st.integers(0, 3)))
SAFE = string.ascii_letters + string.digits + "-_."
GIVEN_OUT = CheckpointToken({"p1": 1_763_240_000_000_000, "p2": 1_763_240_001_234_567}).text()


@settings(derandomize=True, deadline=None)
@given(small, small, small)
def test_tokens_are_a_lattice(a: CheckpointToken, b: CheckpointToken, c: CheckpointToken) -> None:
    assert a.merge(b) == b.merge(a)
    assert a.meet(b) == b.meet(a)
    assert a.merge(a.meet(b)) == a.meet(a.merge(b)) == a
    assert a.merge(b).covers(a)
    assert a.covers(a.meet(b))
    assert c.covers(a.merge(b)) == (c.covers(a) and c.covers(b))
    assert a.meet(b).covers(c) == (a.covers(c) and b.covers(c))
    assert (a <= b) == (a.merge(b) == b) == (a.meet(b) == a) == (b >= a)
    assert (a < b) == (a <= b and a != b) == (b > a)


@settings(derandomize=True, deadline=None)
@given(small, st.sampled_from("pqr"), st.integers(0, 3))
def test_a_token_never_goes_backwards(token: CheckpointToken, pubend: str, tick: int) -> None:
    before = dict(token)
    moved = token.advance(pubend, tick)
    assert moved == token.merge(CheckpointToken({pubend: tick}))
    assert moved[pubend] == max(tick, token.get(pubend, tick))
    assert dict(token) == before, "a token is a value"


@settings(derandomize=True, deadline=None)
@given(tokens)
def test_a_token_survives_every_form(token: CheckpointToken) -> None:
    assert CheckpointToken.parse(token.text()) == token
    assert CheckpointToken.from_json(token.to_json()) == token
    assert CheckpointToken(dict(token)) == token
    assert pickle.loads(pickle.dumps(token)) == token
    assert set(token.text()) <= set(SAFE)
    assert token.to_json().isascii()


@settings(derandomize=True, deadline=None)
@given(tokens, st.randoms(use_true_random=False))
def test_equal_tokens_have_equal_forms(token: CheckpointToken, chance: Any) -> None:
    items = list(token.items())
    chance.shuffle(items)
    twin = CheckpointToken(dict(items))
    assert (twin.text(), twin.to_json(), hash(twin)) == (token.text(), token.to_json(), hash(token))
    assert list(twin) == sorted(twin)
    assert json.dumps(dict(twin), separators=(",", ":")) == twin.to_json()


def test_the_text_is_short_and_stays_readable_for_ever() -> None:
    stored = "tm1.AnAxgMDU3YnqoQYCcDKO2pYBY-HYjQ"
    assert stored == GIVEN_OUT
    assert dict(CheckpointToken.parse(stored)) == {"p1": 1_763_240_000_000_000, "p2": 1_763_240_001_234_567}
    assert dict(CheckpointToken.parse("tm1.n5262Q")) == {}


def test_every_change_of_one_character_is_detected() -> None:
    for at in range(len(GIVEN_OUT)):
        for other in [*SAFE, "=", "+", "/", " ", "\n", "é", "\ud800", ""]:
            if other != GIVEN_OUT[at]:
                with pytest.raises(TokenError):
                    CheckpointToken.parse(GIVEN_OUT[:at] + other + GIVEN_OUT[at + 1 :])


def test_every_cut_insertion_and_exchange_is_detected() -> None:
    length = len(GIVEN_OUT)
    altered = {GIVEN_OUT[:at] for at in range(length)}
    altered |= {GIVEN_OUT[:at] + more + GIVEN_OUT[at:] for at in range(length + 1) for more in "A_= \n"}
    altered |= {
        GIVEN_OUT[:at] + GIVEN_OUT[at : at + 2][::-1] + GIVEN_OUT[at + 2 :] for at in range(length - 1)
    }
    for text in altered - {GIVEN_OUT}:
        with pytest.raises(TokenError):
            CheckpointToken.parse(text)


def parses_or_is_refused(text: str) -> None:
    try:
        token = CheckpointToken.parse(text)
    except TokenError:
        return
    assert token.text() == text


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.text(SAFE).map(lambda text: PREFIX + text)))
def test_any_string_parses_or_raises_a_token_error(text: str) -> None:
    parses_or_is_refused(text)


def forged(entries: bytes) -> str:
    """A text whose checksum is right whatever it holds."""
    data = entries + crc32(PREFIX.encode() + entries).to_bytes(4, "big")
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode()


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    st.lists(
        st.one_of(st.binary(max_size=4), st.sampled_from([b"\x01a\x02", b"\x00", b"\x80\x00", b"\xff" * 9]))
    ).map(b"".join)
)
@example(b"\x01b\x02\x01a\x02")
@example(b"\x01a\x02\x01a\x02")
@example(b"\x81\x00a\x02")
@example(b"\x00\x02")
@example(b"\x05a")
@example(b"\x01\xff\x02")
@example(b"\x01a" + b"\xff" * 9 + b"\x01")
@example(b"\x01a" + b"\xff" * 10 + b"\x01")
def test_a_forged_checksum_gets_nothing_past_but_a_canonical_token(entries: bytes) -> None:
    parses_or_is_refused(forged(entries))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
).map(json.dumps)))  # fmt: skip
@example("[" * 100_000)
@example("1" * 10_000)
@example('{"p":1,"p":2}')
@example('{"p":1e3}')
@example('{"p":9223372036854775808}')
@example('{"p":true}')
@example('{"\\ud800":1}')
@example('{"":1}')
@example(" " * TEXT_CHARS_MAX + "{}")
def test_any_json_is_a_token_or_raises_a_token_error(text: str) -> None:
    try:
        token = CheckpointToken.from_json(text)
    except TokenError:
        return
    assert json.loads(text) == dict(token)


def test_the_json_form_is_canonical_however_it_came() -> None:
    assert CheckpointToken.from_json('{ "p2": 7,\n "p1": -3 }').to_json() == '{"p1":-3,"p2":7}'
    assert CheckpointToken().to_json() == "{}"


def test_wrong_content_is_refused_with_what_to_do() -> None:
    wrong: list[dict[Any, Any]] = [
        {"": 1}, {3: 1}, {"p": 1.0}, {"p": "1"}, {"p": None}, {"p": True},
        {"p": TICK_LAST + 1}, {"p": TICK_FIRST - 1}, {"p": TICK_MIN - 1}, {"p": 2**63 - 1},
        {"é" * 128: 1}, {"\ud800": 1},
    ]  # fmt: skip
    for ticks in wrong:
        with pytest.raises(TokenError):
            CheckpointToken(ticks)
    with pytest.raises(TokenError, match="resume from the token exactly as it was given out"):
        CheckpointToken.parse(GIVEN_OUT[:-1])
    with pytest.raises(TokenError, match="of this version starts with tm1"):
        CheckpointToken.parse("tm2" + GIVEN_OUT[3:])
    with pytest.raises(TokenError, match="over the limit"):
        CheckpointToken.parse(PREFIX + "A" * TEXT_CHARS_MAX)


def test_a_tick_from_an_array_is_a_tick() -> None:
    five: Any = np.int64(5)
    seven: Any = np.int64(7)
    token = CheckpointToken({"p": five}).advance("q", seven)
    assert token == CheckpointToken({"p": 5, "q": 7})
    assert token.to_json() == '{"p":5,"q":7}'


def test_a_token_is_not_a_dict_but_reads_like_one() -> None:
    token = CheckpointToken({"p2": 7, "p1": 3})
    assert (list(token), token["p1"], "p3" in token, len(token)) == (["p1", "p2"], 3, False, 2)
    assert token != {"p1": 3, "p2": 7}
    assert repr(token) == "CheckpointToken({'p1': 3, 'p2': 7})"
