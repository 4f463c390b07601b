"""The text of a checkpoint token: short, checked, and safe in a URL, a database column or JSON.

    text  := "tm1." base64url(entry* crc32), without padding
    entry := name bytes varint | name, UTF-8 | zigzag varint of tick - tick of the entry before

Pubends are in the order of their names and every number is as short as it can be, so a token has one text.
The checksum covers the text's prefix and the entries and is 4 bytes, big-endian. It detects every burst of up
to 32 bits, hence any one changed character and any two exchanged neighbours.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable
from zlib import crc32

from tidemark.errors import TokenError

PREFIX = "tm1."
TEXT_CHARS_MAX = 1 << 20

_CRC_BYTES = 4
#: 10 groups of 7 bits hold the difference of any two int64
_VARINT_BYTES_MAX = 10
_ADVICE = "resume from the token exactly as it was given out, or from an older one that was stored"


def encode(ticks: Iterable[tuple[str, int]]) -> str:
    """The text of (pubend, tick) pairs that are in the order of the names."""
    entries = bytearray()
    before = 0
    for name, tick in ticks:
        raw = name.encode()
        entries += _varint(len(raw)) + raw + _varint(_zigzag(tick - before))
        before = tick
    data = entries + _checksum(entries)
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> list[tuple[str, int]]:
    """The (pubend, tick) pairs in `text`; TokenError if it is damaged or too long.

    The caller checks that the pairs are in order and that `encode` returns this very text for them.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise TokenError(f"{len(text)} characters are over the limit of {TEXT_CHARS_MAX}", text=text)
    if not text.startswith(PREFIX):
        raise TokenError(f"a checkpoint token of this version starts with {PREFIX}; {_ADVICE}", text=text)
    try:
        data = b64decode(text[len(PREFIX) :] + "=" * (-(len(text) - len(PREFIX)) % 4), b"-_", validate=True)
    except ValueError as error:
        raise damaged(text) from error
    entries = data[:-_CRC_BYTES]
    if data[-_CRC_BYTES:] != _checksum(entries):
        raise damaged(text)
    return _parse_entries(entries, text)


def damaged(text: str) -> TokenError:
    """The error to raise for a text that `encode` did not make."""
    return TokenError(f"the checkpoint token was cut or altered; {_ADVICE}", text=text)


def _checksum(entries: bytes | bytearray) -> bytes:
    return crc32(entries, crc32(PREFIX.encode())).to_bytes(_CRC_BYTES, "big")


def _parse_entries(entries: bytes, text: str) -> list[tuple[str, int]]:
    pairs: list[tuple[str, int]] = []
    at = tick = 0
    while at < len(entries):
        size, at = _parse_varint(entries, at, text)
        name = entries[at : at + size]
        delta, at = _parse_varint(entries, at + size, text)
        tick += _unzigzag(delta)
        try:
            pairs.append((name.decode(), tick))
        except UnicodeDecodeError as error:
            raise damaged(text) from error
    return pairs


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if number & 1 == 0 else -(number >> 1) - 1


def _varint(number: int) -> bytes:
    """The number in groups of 7 bits, the lowest first, with the top bit set on all bytes but the last."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _parse_varint(data: bytes, at: int, text: str) -> tuple[int, int]:
    """The number that starts at data[at], and the index of the byte after it."""
    number = 0
    for index, group in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        number |= (group & 0x7F) << 7 * index
        if group < 0x80:
            return number, at + index + 1
    raise damaged(text)
