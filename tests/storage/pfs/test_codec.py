"""The bytes of the PFS: numbers, and records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.errors import DecodeError
from tidemark.storage.pfs.record import BlockHead, Definitions, PfsRecord, Summary, decode, encode
from tidemark.storage.pfs.varints import pack, put, take, unpack
from tidemark.ticks import TICK_MAX, TICK_MIN

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
ids = st.sets(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)), min_size=1, max_size=8).map(sorted)
ticks = st.one_of(st.integers(TICK_MIN, TICK_MAX), st.integers(1_763 * 10**12, 1_763 * 10**12 + 10**6))


@settings(derandomize=True, deadline=None)
@given(st.lists(numbers))
@example([])
@example([2**64 - 1, 0, 127, 128])
def test_numbers_come_back_from_their_bytes(values: list[int]) -> None:
    packed = pack(np.array(values, np.uint64))
    assert unpack(packed).tolist() == values
    one_by_one = bytearray()
    for value in values:
        put(one_by_one, value)
    assert one_by_one == packed
    at = 0
    for value in values:
        found, at = take(packed, at)
        assert found == value


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\x80" * 11 + b"\x01"])
def test_a_number_that_is_cut_off_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        unpack(data)
    with pytest.raises(DecodeError):
        take(data, len(data) - 1 if data[0] == 1 else 0)


@st.composite
def records(draw: st.DrawFn) -> PfsRecord:
    base, *listed, upto = sorted(draw(st.sets(ticks, min_size=2, max_size=12)))
    sets = draw(st.lists(ids, max_size=5))
    first = draw(st.integers(0, 70_000))
    named = draw(st.lists(st.integers(0, first + len(sets)), min_size=len(listed), max_size=len(listed)))
    present = np.array(draw(ids), np.uint32)
    sizes = st.integers(0, 300) | st.integers(0, 2**32 - 1)
    lengths = draw(st.none() | st.lists(sizes, min_size=len(listed), max_size=len(listed)))
    before = draw(
        st.none()
        | st.builds(
            Summary, *[st.integers(1, 9)] * 2, st.just(99), *[st.integers(0, 5)] * 2, st.just(present)
        )
    )
    head = draw(st.none() | st.builds(BlockHead, st.integers(0, 9), st.just(before)))
    return PfsRecord(
        draw(st.integers(1, 300)) if head is None else 0,
        base,
        upto,
        np.array(listed, np.int64),
        np.array(named, np.uint32),
        None if lengths is None else np.array(lengths, np.uint32),
        first,
        Definitions(
            np.array([len(each) for each in sets], np.int64),
            np.array([number for each in sets for number in each], np.uint32),
        ),
        head,
    )


def plain(value: object) -> object:
    """The record with lists for arrays, to be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, PfsRecord | BlockHead | Summary):
        return [plain(getattr(value, name)) for name in value.__slots__]
    return value


@settings(derandomize=True, deadline=None)
@given(records())
def test_a_record_comes_back_from_its_bytes(record: PfsRecord) -> None:
    data = b"".join(encode(record))
    assert plain(decode(data)) == plain(record)
    assert plain(decode(memoryview(data))) == plain(record)


@settings(derandomize=True, deadline=None)
@given(records(), st.integers(0, 10_000))
def test_a_record_that_is_cut_off_is_refused_or_read_as_a_shorter_one(record: PfsRecord, place: int) -> None:
    data = b"".join(encode(record))
    try:
        decode(data[: place % len(data)])
    except DecodeError:
        return


def test_a_record_of_a_later_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="in format 4; this version reads format 3"):
        decode(b"\x40" + bytes(40))


def row_record(ticks: list[int], sets: list[int]) -> PfsRecord:
    rows = np.array(ticks, np.int64), np.array(sets, np.uint32), np.full(len(ticks), 262, np.uint32)
    one = Definitions(np.array([1]), np.array([7], np.uint32))
    return PfsRecord(1, 1_000, ticks[-1], *rows, 0, one, None)


def test_a_record_of_format_2_is_read() -> None:
    header = b"\x24" + (1_000).to_bytes(8, "little", signed=True)  # steps of 2 bytes, sets of 1
    numbers = bytearray()
    for number in (1, 3_001, 2, 0, 1, 262):
        put(numbers, number)
    steps = (3_000).to_bytes(2, "little") + (1).to_bytes(2, "little")
    data = header + bytes(numbers) + b"\0" + steps + b"\0\0" + b"\x01\x07"
    assert plain(decode(data)) == plain(row_record([4_000, 4_001], [0, 0]))


def test_steps_of_one_tick_take_a_byte_although_some_are_long() -> None:
    ticks = [10**6 * burst + at for burst in range(1, 5) for at in range(100)]
    few = sum(map(len, encode(row_record(ticks, [0] * 400))))
    assert few < 400 + 40
    assert sum(map(len, encode(row_record(ticks, [0, 1] * 200)))) < 800 + 40


def test_steps_that_are_all_long_are_as_wide_as_the_longest() -> None:
    assert sum(map(len, encode(row_record(list(range(2_000, 402_000, 1_000)), [0] * 400)))) < 800 + 40
