"""The fixed part of the fuzzer, and that the fuzzer finds what it looks for."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from tidemark.errors import WireError
from tidemark.lab.fuzz import fuzzer
from tidemark.lab.fuzz.command import render
from tidemark.lab.fuzz.connections import HostileClient, HostileNeighbour, Said
from tidemark.lab.fuzz.frame_maker import DECLARED, KINDS, FrameMaker
from tidemark.lab.fuzz.fuzzer import Fuzzer, FuzzReport
from tidemark.lab.fuzz.secured import (
    Judge,
    judge_little,
    judge_neighbour_without_proof,
    judge_nobody,
    judge_stranger,
)
from tidemark.lab.fuzz.values import HostileValues
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Deliver, Frame, Interest, Leased, Refused, Welcome
from tidemark.wire.limits import FRAME_BYTES_MAX


def maker(seed: int = 1) -> FrameMaker:
    return FrameMaker(HostileValues(Random(seed), ("pa", "pb"), ("a", "b")))


def test_every_kind_of_frame_is_made_and_most_of_it_gets_past_the_decoder() -> None:
    made, taken = maker(), Counter[str]()
    assert set(KINDS) == set(get_args(Frame))
    for kind in KINDS:
        for _ in range(80):
            raw, _ = made.make(kind)
            try:
                taken[kind.__name__] += len(FrameDecoder(FRAME_BYTES_MAX).feed(raw))
            except WireError:
                continue
    assert all(taken[kind.__name__] >= 5 for kind in KINDS), taken


def test_a_seed_decides_what_is_said() -> None:
    one, same, other = maker(), maker(), maker(2)
    said = [one.make(kind) for kind in KINDS]
    assert said == [same.make(kind) for kind in KINDS]
    assert said != [other.make(kind) for kind in KINDS]


def test_whatever_is_fixed_is_said_and_numbers_may_be_out_of_bounds() -> None:
    from tidemark.wire.frames import Claim

    raw, shown = maker().make(Claim, name="s", epoch=2**63 - 1, broker="b", settled=True)
    with pytest.raises(WireError, match="epoch"):
        FrameDecoder(FRAME_BYTES_MAX).feed(raw)
    assert str(2**63 - 1) in shown


def test_hostile_clients_and_neighbours_say_all_that_such_may_say() -> None:
    assert {kind.__name__ for kind in HostileClient.KINDS} >= {"Publish", "Subscribe", "Ack", "Ask", "Fetch"}
    assert {kind.__name__ for kind in HostileNeighbour.KINDS} >= {"Knowledge", "Claim", "Fetched", "Release"}


def test_a_failure_is_told_with_its_seed_and_what_was_said_last() -> None:
    text = render(FuzzReport(7, failure="the broker has ended", last=["evil: Claim(...)"]))
    assert "--seed 7" in text
    assert "evil: Claim(...)" in text


@pytest.mark.open_broker(reason="the fuzzer secures a broker by itself, in a test of its own")
def test_hostile_frames_do_not_disturb_a_broker_or_its_clients(tmp_path: Path) -> None:
    report = Fuzzer(tmp_path, seed=1).run(60.0, steps_max=1_200, restart_steps=700)
    assert not report.failure, render(report)
    assert not report.unforeseen, render(report)
    assert report.restarts == 2
    assert report.frames > 500
    assert 0 < report.longest_turn <= fuzzer.TURN_SECONDS_MAX
    assert report.delivered > 0


@pytest.mark.open_broker(reason="the fuzzer secures a broker by itself, in a test of its own")
def test_a_turn_that_takes_too_much_processor_time_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzer, "TURN_SECONDS_MAX", 0.0)
    report = Fuzzer(tmp_path, seed=1).run(60.0, steps_max=10)
    assert report.longest_turn > 0
    assert report.failure.startswith("a turn of the broker took")
    assert report.failure.endswith("s of processor time")


def test_hostile_frames_to_a_broker_with_accounts_show_nobody_what_it_may_not_see(tmp_path: Path) -> None:
    report = Fuzzer(tmp_path, seed=3, is_secured=True).run(60.0, steps_max=1_200, restart_steps=700)
    assert not report.failure, render(report)
    assert not report.unforeseen, render(report)
    assert report.restarts == 2
    assert report.delivered > 0
    assert {"Login", "Challenge", "Refused", "Welcome", "Interest"} <= set(report.heard)
    assert report.counters["denied"] > 0


@pytest.mark.parametrize("judge", [None, judge_nobody])
def test_clients_that_are_judged_by_who_they_are_keep_their_tickets_to_themselves(
    judge: Judge | None,
) -> None:
    here, there = socket.socketpair()
    with here, there:
        values = HostileValues(Random(1), ("pa",), ("a",))
        client = HostileClient("evil-client-0", ("", 0), values, FrameMaker(values), Said())
        client.judge, client._socket = judge, here
        there.sendall(b"".join(map(bytes, encode(Leased(5, "a ticket")))))
        client.step()
        assert list(values.leases) == (["a ticket"] if judge is None else [])


def test_what_somebody_hears_beyond_its_rights_is_told() -> None:
    builder = BatchBuilder()
    builder.add(Shape("evil.declared.0", DECLARED[0].fingerprint), DECLARED[0].encode({"n": 1, "text": "x"}))
    shown = Deliver("evil-1", "pa", 0, 9, builder.build())
    assert "hidden" in judge_little(shown)
    assert "without rights" in judge_nobody(shown)
    assert "not logged in" in judge_stranger(Welcome("a", 1, 1, ()))
    assert "without a proof" in judge_neighbour_without_proof(Interest("pa", 1, None))
    for judge in (judge_stranger, judge_nobody, judge_little, judge_neighbour_without_proof):
        assert not judge(Refused("", "", "login", ""))
