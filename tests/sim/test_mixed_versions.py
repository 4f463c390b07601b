"""Simulated brokers that speak different versions of the protocol between brokers."""

from __future__ import annotations

import pytest

from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.swarm.plan import SETTLED_SINCE
from tidemark.sim.swarm.swarm import SeedRun, run_seed
from tidemark.sim.world import machine
from tidemark.sim.world.machine import spoken
from tidemark.wire.frames import AckExpected, Claim, Nack, PeerFrame, Together, Yielded
from tidemark.wire.limits import LINK_NEWEST, LINK_OLDEST
from tidemark.wire.versions import is_spoken

CLAIM = Claim("s", 4, "b1", True, "b2", "ab")
BOTH = Together((AckExpected("p", 9), CLAIM, Yielded("s", 4, "b1")))


def test_a_neighbour_hears_of_a_frame_what_its_version_has() -> None:
    assert list(spoken(BOTH, LINK_NEWEST)) == [BOTH]
    assert list(spoken(BOTH, 6)) == [
        Together((BOTH.frames[0], Claim("s", 4, "b1", True, "b2"), BOTH.frames[2]))
    ]
    assert list(spoken(BOTH, 3)) == [AckExpected("p", 9), Claim("s", 4, "b1", True)]
    assert list(spoken(Yielded("s", 4, "b1"), LINK_OLDEST)) == []


def test_a_link_speaks_the_older_version_of_its_ends_and_restarts_raise_it() -> None:
    world = SeedRun(11, profile="mixed").world
    versions = {name: each.link_version for name, each in world.machines.items()}
    assert min(versions.values()) < LINK_NEWEST
    for a, b in world.layout.all_links():
        assert world.link_version(a, b) == min(versions[a], versions[b])
    for name, before in versions.items():
        world.crash(name)
        world.restart(name)
        assert before <= world.machines[name].link_version <= LINK_NEWEST


def test_every_broker_is_new_enough_when_a_world_is_judged_and_other_profiles_have_only_the_newest() -> None:
    run = SeedRun(27, profile="mixed")
    run.execute()
    last = run.plan.link_version_in_the_end
    assert last >= SETTLED_SINCE
    assert all(each.link_version >= last for each in run.world.machines.values())
    assert not SeedRun(27).plan.link_versions


def test_the_simulator_notices_what_a_neighbour_would_not_understand(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(frame: PeerFrame, version: int) -> tuple[PeerFrame, ...]:  # noqa: ARG001  (as `spoken`)
        return (frame,)

    assert not is_spoken(Together((Nack("p", ((1, 2),), 1),)), 3)
    monkeypatch.setattr(machine, "spoken", unchanged)
    with pytest.raises(ViolationError, match="does not know"):
        run_seed(27, profile="mixed")


@pytest.mark.long
def test_brokers_that_were_all_restarted_may_ask_for_an_hour_of_silence_a_second_at_a_time() -> None:
    """A pubend's clock had jumped by an hour: the nacks stop in the end, though not within seconds."""
    assert run_seed(12, profile="mixed").events > 0
