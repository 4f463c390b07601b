"""Arrow streams of strangers: what they say is checked before a value is looked at."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tidemark.console.door.arrow_bodies import VALUES_BYTES_MAX, rows_of_arrow
from tidemark.console.problems import ProblemError

pa = pytest.importorskip("pyarrow")


def body_of(*columns: Any, **options: Any) -> bytes:
    batch = pa.record_batch(list(columns), [f"c{number}" for number in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def refused(body: bytes) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        rows_of_arrow(body, 100_000)
    return caught.value


def test_rows_are_read_without_what_is_absent() -> None:
    body = body_of(
        pa.array([1, None]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([[{"x": 1.5}], []]),
        pa.array([None, b"\x00"]),
    )
    assert rows_of_arrow(body, 2) == [
        {"c0": 1, "c1": "a", "c2": [{"x": 1.5}]},
        {"c1": "b", "c2": [], "c3": b"\x00"},
    ]
    with pytest.raises(ProblemError, match="2 events"):
        rows_of_arrow(body, 1)


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_offsets_that_lead_beyond_the_body_show_no_memory_of_the_console(kind: str) -> None:
    body = body_of(pa.array([b"hello"]).cast(kind))
    place = body.rindex(struct.pack("<ii", 0, 5))
    wrong = body[:place] + struct.pack("<ii", 0, 4_000) + body[place + 8 :]
    problem = refused(wrong)
    assert problem.status == 400
    assert "offsets" in problem.reason


def test_numbers_of_a_dictionary_that_it_does_not_have_are_refused() -> None:
    body = body_of(pa.DictionaryArray.from_arrays(pa.array([1_234], pa.int32()), pa.array(["a"]), safe=False))
    assert refused(body).status == 400


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_body_is_not_unpacked(codec: str) -> None:
    zeros = pa.array([b"\0" * 50_000_000])
    for columns in ((zeros,), (pa.array([b"\0" * 50_000_000]).dictionary_encode(),)):
        body = body_of(*columns, compression=codec)
        assert len(body) < 1_000_000
        problem = refused(body)
        assert (problem.status, "compressed" in problem.reason) == (415, True)


def test_a_few_bytes_do_not_stand_for_many() -> None:
    long = "x" * (VALUES_BYTES_MAX // 10_000)
    many = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array([long]))
    assert refused(body_of(many)).status == 413
    for column in (
        pa.RunEndEncodedArray.from_arrays(pa.array([50_000], pa.int32()), pa.array([long])),
        pa.array(["x" * 100], pa.string_view()),
        pa.array([["x"]], pa.list_view(pa.string())),
        pa.nulls(100),
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ):
        problem = refused(body_of(column))
        assert (problem.status, "not read from strangers" in problem.reason) == (415, True), column.type


def test_no_prefix_and_no_harmed_byte_of_a_body_is_more_than_refused() -> None:
    body = body_of(pa.array(["hello", "world"]), pa.array([1, 2]), pa.array(["a", "a"]).dictionary_encode())
    for size in range(0, len(body), 7):
        try_to_read(body[:size])
    for place in range(len(body)):
        for value in (0, 0x7F, 0xFF):
            try_to_read(body[:place] + bytes([value]) + body[place + 1 :])


def try_to_read(body: bytes) -> None:
    """Whatever it says, a body has rows or is refused."""
    try:
        rows = rows_of_arrow(body, 100)
    except ProblemError:
        return
    assert len(rows) <= 100
