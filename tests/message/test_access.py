"""Accessors of fields inside variants: every width of code, met for the first time and again, and damaged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tidemark.errors import DecodeError
from tidemark.message.codec import access
from tidemark.message.schema import Schema

KINDS: dict[str, Any] = {"int": 7, "double": 0.5, "boolean": True, "string": "héllo", "bytes": b"\xff\x00"}


def optional_fields(count: int) -> Schema:
    """`count` optional fields of all kinds in turn: 2**count codes."""
    kinds = list(KINDS)
    return Schema.parse("[" + ", ".join(f"f{i}: {kinds[i % len(kinds)]}?" for i in range(count)) + "]")


def random_value(count: int, random: Random) -> dict[str, Any]:
    samples = list(KINDS.values())
    return {f"f{i}": samples[i % len(samples)] for i in range(count) if random.random() < 0.5}


@pytest.mark.parametrize("count", [5, 8, 9, 20, 70])
def test_an_optional_field_reads_right_however_many_codes_there_are(count: int) -> None:
    schema, random = optional_fields(count), Random(count)
    accessors = {f"f{i}": schema.accessor(f"f{i}") for i in range(count)}
    for _ in range(50):
        value = random_value(count, random)
        message = schema.encode(value)
        for _again in range(2):
            found = {name: get(message) for name, get in accessors.items()}
            assert found == {name: value.get(name) for name in accessors}


@pytest.mark.parametrize("count", [5, 9])
def test_a_truncated_message_is_an_error_whether_its_code_was_met_or_not(count: int) -> None:
    schema = optional_fields(count)
    samples = list(KINDS.values())
    message = schema.encode({f"f{i}": samples[i % len(samples)] for i in range(count)})
    for warm in (False, True):
        for i in range(count):
            get = schema.accessor(f"f{i}") if warm else optional_fields(count).accessor(f"f{i}")
            if warm:
                assert get(message) == samples[i % len(samples)]
            for cut in range(schema.flat.code_width + 1):
                with pytest.raises(DecodeError):
                    get(message[:cut])


def test_a_code_that_no_case_has_is_an_error() -> None:
    schema = Schema.parse("[a: {x: int | y: int | z: string}]")
    for path in ("a.x", "a.z"):
        get = schema.accessor(path)
        for _again in range(2):
            with pytest.raises(DecodeError, match="no case has the multi-choice code 3"):
                get(b"\x03" + bytes(20))


def test_a_string_that_is_not_utf8_is_an_error_at_its_path() -> None:
    schema = Schema.parse("[a: string?, b: string]")
    message = schema.encode({"a": "xx", "b": "yy"}).replace(b"xx", b"\xff\xff").replace(b"yy", b"\xff\xff")
    for path in ("a", "b"):
        with pytest.raises(DecodeError, match=f"{path}: not UTF-8 at byte 0"):
            schema.accessor(path)(message)


def test_an_accessor_forgets_codes_it_has_too_many_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CODES_KEPT_MAX", 4)
    schema, random = optional_fields(12), Random(1)
    get = schema.accessor("f3")
    for _ in range(100):
        value = random_value(12, random)
        assert get(schema.encode(value)) == value.get("f3")


def test_fields_of_mixed_widths_lie_where_they_are_read() -> None:
    """Without variants there is no code in front; the header was once laid out with the machine's gaps."""
    schema = Schema.parse("[n: long, kind: int, sent: long, ok: boolean, price: double, payload: bytes]")
    event = {"n": 1, "kind": 2, "sent": 3, "ok": True, "price": 4.5, "payload": b"five"}
    message = schema.encode(event)
    assert {name: schema.accessor(name)(message) for name in event} == event
    assert schema.decode(message) == event
