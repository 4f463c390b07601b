"""The publishers that a pubend remembers, against a naive model, and what they take."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tidemark.access.principal import NAME_CHARACTERS_MAX
from tidemark.broker.publishing.remembered_publishers import (
    PUBLISHER_BYTES,
    PUBLISHERS_BYTES_MAX,
    RememberedPublishers,
)


@given(st.lists(st.tuples(st.sampled_from(("append", "sync", "full")), st.sampled_from("abc")), max_size=40))
def test_a_full_disk_takes_back_exactly_what_is_not_durable(steps: list[tuple[str, str]]) -> None:
    remembered = RememberedPublishers({"a": (5, 5)})
    appended, durable, waiting = {"a": (5, 5)}, {"a": (5, 5)}, []
    for tick, (step, name) in enumerate(steps, 10):
        if step == "append":
            appended[name] = (tick, tick)
            waiting.append((name, (tick, tick)))
            remembered.appended(name, (tick, tick))
        elif step == "full":
            appended, waiting = dict(durable), []
            remembered.discarded()
        elif waiting:
            name, last = waiting.pop(0)
            durable[name] = last
            remembered.durable(name, last)
        assert {each: remembered.get(each) for each in "abc"} == {each: appended.get(each) for each in "abc"}
        assert len(remembered) == len(appended)
        assert remembered.bytes == len(appended) * (PUBLISHER_BYTES + 1)


def test_what_is_counted_for_a_publisher_is_what_it_takes() -> None:
    names = [f"the publisher {number}" for number in range(20_000)]
    tracemalloc.start()
    remembered = RememberedPublishers({})
    for number, name in enumerate(names):
        # Names and numbers that come from frames are objects of their own.
        remembered.appended("".join(name), (1_000 + number, 1 << 50 | number))
        remembered.durable(name, (1_000 + number, 1 << 50 | number))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert remembered.bytes / 2 < taken < remembered.bytes


def test_a_snapshot_of_all_that_can_be_remembered_fits_into_a_record() -> None:
    assert PUBLISHERS_BYTES_MAX // (PUBLISHER_BYTES + 255) * (18 + 255) < 24 << 20
    owner = 4 * NAME_CHARACTERS_MAX
    whole = 2 * PUBLISHER_BYTES + 255 + 255 + owner
    assert PUBLISHERS_BYTES_MAX // whole * (18 + 255 + 14 + 255 + 2 + owner) < 24 << 20
