"""Whole simulated networks under faults, and the oracle that checks them; `./run sim` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.waiting import PATIENCE_SECONDS
from tidemark.broker.counters import COUNTED
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.judging.oracle import check_world
from tidemark.sim.swarm.report import FAULTS, SeedsReport
from tidemark.sim.swarm.swarm import SeedOutcome, SeedRun, run_many, run_seed
from tidemark.sim.world.engine import Engine
from tidemark.sim.world.subscriber import ConsumedPubend, SimSubscriber
from tidemark.wire.frames import Deliver, Gap, Knowledge

#: Small worlds that together with those of REGRESSIONS meet nearly all that brokers count, and every fault.
SEEDS = {
    "swarm": (58, 128, 147, 170, 173),
    "network": (9,),
    "crashes": (8,),
    "disk": (5,),
    "hostile": (3,),
    "calm": (10,),
    "access": (7, 8),
    "mixed": (11,),
}

#: (profile, seed) that found a bug once -> what it was.
REGRESSIONS: dict[tuple[str, int], str] = {
    ("mixed", 27): "a broker that speaks an older version said what that version does not have",
    ("swarm", 298): "what was let go before expired events made the damage behind them silence",
    (
        "narrow",
        14_000_201,
    ): "who came earlier and whose subscription was not on disk yet was claimed above who came later",
    ("thin", 41_000_206): "what was being told for the first time over a thin link was sent as an answer too",
    ("thin", 12_000_583): "an answer that was being sent over a thin link was sent again",
    ("thin", 12_000_689): "who had been followed meanwhile was told that what lacked its events was complete",
    ("access", 10_000_323): "a live subscriber was told a gap for what the archive had",
    (
        "access",
        9_300_018,
    ): "a late claim was answered before the subscription was on disk, and nobody held it in the end",
    (
        "swarm",
        6_000_202,
    ): "who told one neighbour alone of a later claim kept it from who the earlier was for",
    ("thin", 2_000_323): "answers to an interest of before went over a thin link beside those to the new one",
    (
        "access",
        2_000_182,
    ): "a publisher that moved behind a damaged record made the damage silence",
    ("narrow", 9_510_223): "the oracle held a topic against brokers that only a removed broker had confirmed",
    (
        "access",
        10_001_511,
    ): "the oracle held what came before a changed rule against a client that had missed its start",
    ("access", 8_000_458): "a simulated client heard a Subscribed before what was told before it",
    ("access", 921_054): "the oracle judged ways while a broker still followed both",
    ("access", 910_278): "an access document of before won after everybody had the last one of the world",
    ("narrow", 830_139): "who waited until a claim was settled did not hear of the one that took its place",
    ("swarm", 701): "an outage made a relay wait for a minute before it asked again for what was lost",
    ("swarm", 510_161): "a pubend that kept events for newcomers let them go although a host had come",
    ("swarm", 78_109): "a broker said that it had let a subscriber go before that was on disk, and crashed",
    ("swarm", 500_278): "a broker that was away while a subscriber moved twice never heard of either move",
    ("swarm", 700_158): "a broker that came back between a claim and its settlement never heard of it",
    ("swarm", 0): "the PFS was given the members of a set in any order",
    ("swarm", 54): "an answer of the PFS to a former connection was taken for one that began elsewhere",
    ("swarm", 76): "a subscriber was told from where a change holds before that was on disk",
    ("swarm", 40): "a broker stayed with a worse way although the better one did not follow it any more",
    ("swarm", 253): "a host was told that it was heard by a way that was gone",
    ("swarm", 110_564): "a log forgot damage when only a part of its ticks was let go",
    ("swarm", 120_882): "a relay had a row of before a host had anybody, and a restarted pubend believed it",
    ("swarm", 131_385): "who changed its selector and left before that was on disk was forgotten",
    ("swarm", 140_404): "brokers that followed each other for a while sent a row round and round",
    ("thin", 500_037): "routes were judged while what brokers say of their links waited for a thin link",
    ("thin", 500_250): "who may ask for two ranges at once never came to ask for larger ones",
    ("thin", 500_296): "the same, so that history of half a second took more than a minute",
    (
        "narrow",
        610_351,
    ): "the archive asked for two pubends under one ticket, and the second was not answered",
    ("narrow", 700_327): "a broker that is drained was expected to keep events for newcomers",
    ("narrow", 701_691): "the archive asked again under the ticket of a fetch that was under way",
    ("narrow", 830_509): "answers went to who had left the stream, and again where a part of them waited",
    ("narrow", 9_210_087): "a way in use was not told what a better one was told that went down",
    ("swarm", 9_410_008): "the same, in a world whose links have no bandwidth",
    ("swarm", 121_998): "what was wanted at another broker was not known to the one that was returned to",
}


WORLDS = [(profile, seed) for profile, seeds in SEEDS.items() for seed in seeds]


@cache
def outcome(profile: str, seed: int) -> SeedOutcome:
    return run_seed(seed, profile=profile)


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "seed"), WORLDS)
def test_every_promise_is_kept(profile: str, seed: int) -> None:
    assert outcome(profile, seed).events > 0


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "seed"), REGRESSIONS, ids=REGRESSIONS.get)
def test_a_seed_that_once_failed_stays_mended(profile: str, seed: int) -> None:
    outcome(profile, seed)


def test_a_storm_is_noticed() -> None:
    engine = Engine(0)

    def beget() -> None:
        engine.after(0, beget)

    beget()
    with pytest.raises(ViolationError, match="storm"):
        engine.run(1)


@pytest.mark.slow
def test_these_worlds_meet_nearly_all_that_can_happen() -> None:
    report = SeedsReport("swarm", 0)
    for profile, seed in [*REGRESSIONS, *WORLDS]:
        report.add(outcome(profile, seed))
    never = report.never
    assert len(never) <= (len(COUNTED) + len(FAULTS)) // 8, never


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(147) == run_seed(147)


@pytest.mark.slow
def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    program = "from tidemark.sim.swarm.swarm import run_seed; print(run_seed(147).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.slow
def test_several_processes_tell_the_same_as_one() -> None:
    alone, together = list[SeedOutcome](), list[SeedOutcome]()
    run_many(170, 2, jobs=1, report=alone.append)
    run_many(170, 2, jobs=2, report=together.append)
    assert together == alone


# The oracle, shown worlds that went well and were tampered with.

#: A world that is soon over, if it suits; whatever changes what seeds mean, others do.
_SHORT = 84


class Finished:
    """A calm world at its end, and somebody durable in it who got events from another broker."""

    def __init__(self) -> None:
        for seed in (_SHORT, *range(100)):
            self.run = SeedRun(seed, profile="calm")
            plan = self.run.plan
            is_plain = not (plan.is_early or plan.has_archive or plan.moves or plan.reaches_back)
            if is_plain and self._somebody() is not None:
                self.run.execute()
                if (found := self._somebody()) is not None and found[2].events:
                    self.subscriber, self.pubend, self.received = found
                    break
        self.world = self.run.world
        self.host = self.run.plan.pubends[self.pubend]
        self.life = self.subscriber.life

    def _somebody(self) -> tuple[SimSubscriber, str, ConsumedPubend] | None:
        for subscriber in self.run.world.subscribers:
            for pubend, host in self.run.plan.pubends.items():
                if subscriber.life.durable and subscriber.machine != host:
                    return subscriber, pubend, subscriber.life.ledger.get(pubend, ConsumedPubend(0, 0))
        return None

    @property
    def last_hop(self) -> tuple[str, str]:
        """From whom the subscriber's host has the pubend, and the host."""
        broker = self.world.machines[self.subscriber.machine].broker
        stream = broker.stream(self.pubend) if broker is not None else None
        assert stream is not None
        assert stream.upstream is not None
        return stream.upstream, self.subscriber.machine


def batch_of(finished: Finished, tick: int, key: str, *, validity_ms: int = 0) -> EventBatch:
    schema = finished.world.schema
    builder = BatchBuilder()
    message = schema.encode({"key": key, "kind": "a", "n": 1})
    builder.add(Shape("t.x", schema.fingerprint), message, publisher="pub0", validity_ms=validity_ms)
    batch = builder.build()
    batch.fill_ticks(np.array([tick], np.int64))
    return batch


def test_the_oracle_notices_an_event_that_is_missing() -> None:
    finished = Finished()
    del finished.received.events[0]
    with pytest.raises(ViolationError, match="is missing"):
        check_world(finished.world)


def test_the_oracle_notices_an_event_that_came_twice() -> None:
    finished = Finished()
    finished.received.events.append(finished.received.events[-1])
    with pytest.raises(ViolationError, match="out of order or twice"):
        check_world(finished.world)


def test_the_oracle_notices_an_event_that_nobody_published() -> None:
    finished = Finished()
    finished.received.events[-1] = (finished.received.events[-1][0], "pub0/99999")
    with pytest.raises(ViolationError, match="not wanted or not published"):
        check_world(finished.world)


def test_the_oracle_notices_an_acknowledged_event_that_is_not_on_disk() -> None:
    finished = Finished()
    finished.world.publishers[0].acknowledged += 1_000
    with pytest.raises(ViolationError, match="not on disk"):
        check_world(finished.world)


def test_the_oracle_notices_a_gap_that_nothing_justifies() -> None:
    finished = Finished()
    tick, _ = finished.received.events.pop()
    finished.received.gaps.append((tick - 1, tick))
    with pytest.raises(ViolationError, match="a gap that nothing justifies"):
        check_world(finished.world)


def test_a_gap_where_history_is_not_gone_is_noticed_when_it_is_told() -> None:
    finished = Finished()
    tick, _ = finished.received.events[-1]
    finished.world.checks.lost[finished.pubend] = tick
    gap = Gap(finished.life.name, finished.pubend, tick - 1, tick)
    finished.world.checks.told(finished.world.latest, gap)
    finished.world.checks.lost[finished.pubend] = tick - 1
    with pytest.raises(ViolationError, match="where not all is gone"):
        finished.world.checks.told(finished.world.latest, gap)


def test_false_silence_is_noticed_when_it_is_sent() -> None:
    finished = Finished()
    tick, _ = finished.received.events[-1]
    silence = Knowledge(finished.pubend, tick - 1, tick, 0, True, 1 << 60)
    finished.world.checks.knowledge(*finished.last_hop, silence)
    finished.received.upto = tick - 1  # it has not got that far
    finished.world.checks.knowledge(*finished.last_hop, replace(silence, version=1))  # which nobody believes
    with pytest.raises(ViolationError, match="of silence at"):
        finished.world.checks.knowledge(*finished.last_hop, silence)


def test_an_event_that_is_not_durable_is_noticed_when_it_is_sent() -> None:
    finished = Finished()
    tick = finished.world.ground_truth.last(finished.pubend) + 1
    early = Knowledge(finished.pubend, tick - 1, tick, 0, True, 0, batch_of(finished, tick, "pub0/99999"))
    with pytest.raises(ViolationError, match="which is not durable"):
        finished.world.checks.knowledge(*finished.last_hop, early)


def test_an_expired_event_is_noticed_when_it_is_told() -> None:
    finished = Finished()
    tick = finished.world.ground_truth.last(finished.pubend) + 1
    finished.world.ground_truth.add("t.x", {"key": "pub0/99999", "kind": "a", "n": 1}, 10)
    batch = batch_of(finished, tick, "pub0/99999", validity_ms=10)
    late = Deliver(finished.life.name, finished.pubend, tick - 1, tick, batch)
    finished.world.checks.told(tick + 9_999, late)
    with pytest.raises(ViolationError, match="which has expired"):
        finished.world.checks.told(tick + 10_000, late)


def test_history_that_is_let_go_too_early_is_noticed_at_once() -> None:
    finished = Finished()
    with pytest.raises(ViolationError, match="has only got to"):
        finished.world.checks.let_go(finished.pubend, finished.received.upto + 1, finished.world.latest)


def test_a_range_that_is_told_with_a_hole_before_it_is_noticed() -> None:
    finished = Finished()
    upto = finished.received.upto
    with pytest.raises(ViolationError, match=f"told up to {upto}, then from {upto + 1}"):
        finished.subscriber.receive(Deliver(finished.life.name, finished.pubend, upto + 1, upto + 2, None))


def test_the_report_says_loudly_what_no_world_met() -> None:
    report = SeedsReport("swarm", 7)
    report.add(SeedOutcome(7, 3, 2, 0, {"nacks_sent": 5, "fences": 0}))
    report.add(SeedOutcome(8, violation="it rained"))
    assert report.as_dict()["coverage"]["nacks_sent"] == {"times": 5, "seeds": 1}
    assert "fences" in report.never
    assert "nacks_sent" not in report.never
    assert "NEVER MET in 2 worlds" in report.render()
    assert report.as_dict()["failures"] == [
        {
            "seed": 8,
            "violation": "it rained",
            "replay": "./run sim --from 8 --seeds 1 --profile swarm --trace",
        }
    ]
