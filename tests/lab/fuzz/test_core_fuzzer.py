"""The fixed part of the fuzzer of the core."""

from __future__ import annotations

from random import Random

import pytest

from tidemark.errors import WireError
from tidemark.lab.fuzz.connections import Said
from tidemark.lab.fuzz.core_fuzzer import CoreFuzzer
from tidemark.lab.fuzz.frame_maker import KINDS, FrameMaker
from tidemark.lab.fuzz.frame_work import CALLS_A_BYTE, CALLS_MAX, FrameWork
from tidemark.lab.fuzz.values import HostileValues
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Ack, Interest, Nack, Subscribe
from tidemark.wire.limits import FRAME_BYTES_MAX


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        # A subscriber that started just before all history was lost: the PFS was asked again and again.
        (1, 1_500),
        (5017, 1_600),
    ],
)
def test_hostile_frames_do_not_disturb_the_core(seed: int, steps: int) -> None:
    report = CoreFuzzer(seed).run(steps)
    assert not report.failure, report.failure
    assert not report.unforeseen
    assert report.delivered >= steps // 20


def test_a_run_follows_from_its_seed() -> None:
    one, same, other = (CoreFuzzer(seed).run(200) for seed in (5, 5, 6))
    assert (one.frames, one.counters) == (same.frames, same.counters)
    assert one.counters != other.counters


def test_a_frame_that_makes_a_broker_work_out_of_proportion_is_a_failure() -> None:
    work, said = FrameWork(), Said()
    said.add("evil", "Ping", "a frame")

    def calls(number: int, size: int) -> None:
        with work.of(bytes(size), said):
            for _ in range(number):
                len("")

    for size in (1, 1_000):
        calls((CALLS_MAX + CALLS_A_BYTE * size) // 2, size)
        with pytest.raises(AssertionError, match=f"calls for a frame of {size} bytes"):
            calls(CALLS_MAX + CALLS_A_BYTE * size + 1, size)


def test_frames_near_their_largest_size_are_made_and_most_of_them_can_be_read() -> None:
    values = HostileValues(Random(1), ["pa"], ["a"])
    values.nonsense = 0.0
    maker, largest, read = FrameMaker(values), dict.fromkeys(KINDS, 0), 0
    for kind in (Subscribe, Ack, Nack, Interest):
        for _ in range(1_500):
            raw, _ = maker.make(kind)
            if len(raw) > largest[kind]:
                largest[kind] = len(raw)
            if len(raw) > 10_000:
                try:
                    read += len(FrameDecoder(FRAME_BYTES_MAX).feed(raw))
                except WireError:
                    read += 0
    assert min(largest[kind] for kind in (Subscribe, Ack, Nack, Interest)) > 10_000, largest
    assert read > 10
