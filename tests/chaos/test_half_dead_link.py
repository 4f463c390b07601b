"""Two brokers in network namespaces, whose link loses one direction, both, or all packets that are large."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tidemark.lab.bench.thinlink.benchmark import PORT, ThinBed
from tidemark.lab.bench.thinlink.namespaces import FAR_HOST, NEAR_HOST, problem

REASON = problem()
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

BITS_PER_SECOND = 20_000_000
#: Longer than brokers take to notice by its silence that a link is dead.
FAULT_SECONDS = 1.5
EVENTS, TEXT_BYTES = 100, 3_000
#: Frames of a few live events pass, and those of events with long texts do not.
LARGEST_PACKET = 600


def test_a_link_that_is_dead_in_one_direction_or_swallows_large_packets_loses_and_repeats_nothing() -> None:
    at_near, at_far = f"tidemark://{NEAR_HOST}:{PORT}", f"tidemark://{FAR_HOST}:{PORT}"
    with ThinBed(BITS_PER_SECOND) as bed:
        network = bed.network
        near, far = network.near, network.far
        faults: list[Callable[[bool], None]] = [
            lambda is_on: network.mute(near, is_mute=is_on),
            lambda is_on: network.mute(far, is_mute=is_on),
            lambda is_on: network.cut(near, is_cut=is_on),
            lambda is_on: network.narrow(far, *([LARGEST_PACKET] if is_on else [])),
            lambda is_on: network.narrow(near, *([LARGEST_PACKET] if is_on else [])),
        ]
        bed.start_brokers()
        token = bed.run(near, "hold", url=at_near)["token"]
        live = bed.client(far, "take_live", url=at_far)
        bed.wait_ready(live)
        publisher = bed.client(near, "publish_live", url=at_near, rate=50.0)
        total = EVENTS * len(faults)
        history = bed.client(far, "take_history", url=at_far, token=token, events=total, seconds=60.0)
        for number, fault in enumerate(faults):
            fault(True)
            began = time.monotonic()
            some = {"events": EVENTS, "text_bytes": TEXT_BYTES, "begin": EVENTS * number}
            bed.run(near, "publish_history", url=at_near, **some)
            time.sleep(max(0.0, FAULT_SECONDS - (time.monotonic() - began)))
            fault(False)
        found = bed.stop(history)
        deaths = bed.link_deaths()
        published = bed.stop(publisher)["published"]
        lateness = bed.stop(live, str(published))
    assert (found["got"], found["wrong"]) == (total, "")
    assert (len(lateness["late"]), lateness["wrong"]) == (published, "")
    assert deaths >= 1, "a fault was never noticed, so nothing was tested"
