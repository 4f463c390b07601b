"""An event carries a traceparent beside its publisher's name, whatever is done with its batch."""

from __future__ import annotations

import numpy as np
import pytest

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.message.batches.trace_context import (
    check_traceparent,
    publisher_of,
    sampled_traceparent,
    traced_rows,
    traceparent_of,
    with_traceparent,
)

ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TWO = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def batch(*traces: str) -> EventBatch:
    builder = BatchBuilder()
    for trace in traces:
        builder.add(Shape("t", 1), b"", publisher=with_traceparent("desk", trace) if trace else "desk")
    return builder.build()


def test_a_name_is_taken_apart_as_it_was_put_together() -> None:
    name = with_traceparent("the desk", ONE)
    assert (publisher_of(name), traceparent_of(name)) == ("the desk", ONE)
    for plain in ("", "desk", ONE, f"desk {ONE[:-1]}", f"desk  {'x' * 55}", f"desk{ONE}"):
        assert (publisher_of(plain), traceparent_of(plain)) == (plain, None)


def test_the_rows_that_carry_one_are_found_after_rows_were_taken_and_batches_joined() -> None:
    joined = concatenate([batch("", ONE), batch("", ""), batch(TWO, "", TWO)])
    assert traced_rows(joined, 10) == [(1, ONE), (4, TWO), (6, TWO)]
    assert traced_rows(joined, 2) == [(1, ONE), (4, TWO)]
    assert traced_rows(EventBatch.parse(bytes(joined.take(np.array([0, 4])).data)), 10) == [(1, TWO)]
    assert traced_rows(batch("", ""), 10) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01" + ONE[2:],
        ONE.upper(),
        ONE[:-1],
        f"{ONE} ",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_refused(text: str) -> None:
    with pytest.raises(EncodeError, match="no traceparent"):
        check_traceparent(text)
    assert sampled_traceparent(text) is None


def test_only_a_sampled_trace_is_carried_on() -> None:
    assert check_traceparent(ONE) == sampled_traceparent(ONE) == ONE
    assert sampled_traceparent(f"{ONE[:-2]}00") is None
