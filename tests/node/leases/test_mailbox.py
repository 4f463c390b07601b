"""What waits for a client that is away, and where a broker calls at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.node.speech import events
from tidemark.errors import ConfigError
from tidemark.node.leases.callback_policy import check_patterns, may_call
from tidemark.node.leases.mailbox import Mailbox
from tidemark.wire.frames import Deliver, Frame, Gap, Published

names = st.sampled_from(["a", "b"])
kinds = st.sampled_from(["silence", "events", "gap", "other"])


def said(steps: list[tuple[str, str, str]]) -> list[Frame]:
    """What a broker says: for each subscriber and pubend, ranges that follow one another."""
    at: dict[tuple[str, str], int] = {}
    frames: list[Frame] = []
    for name, pubend, kind in steps:
        base = at.get((name, pubend), 0)
        if kind == "other":
            frames.append(Published(pubend, name, 1 + len(frames), 1))
            continue
        at[name, pubend] = base + 2
        batch = events(base, 1) if kind == "events" else None
        is_gap = kind == "gap"
        frames.append(
            Gap(name, pubend, base, base + 2) if is_gap else Deliver(name, pubend, base, base + 2, batch)
        )
    return frames


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.tuples(names, names, kinds), max_size=30))
def test_mail_keeps_all_but_silence_in_order_and_leaves_no_hole(steps: list[tuple[str, str, str]]) -> None:
    mailbox, frames = Mailbox(), said(steps)
    for frame in frames:
        mailbox.put(frame)
    loud = [frame for frame in frames if not (isinstance(frame, Deliver) and frame.batch is None)]
    assert bool(mailbox) is bool(loud)
    assert (mailbox.bytes > 0) is bool(loud)
    taken = mailbox.take()
    assert [frame for frame in taken if not (isinstance(frame, Deliver) and frame.batch is None)] == loud
    for which in {(name, pubend) for name, pubend, kind in steps if kind != "other"}:
        ranges = [
            (frame.base, frame.upto)
            for frame in taken
            if isinstance(frame, Deliver | Gap) and (frame.name, frame.pubend) == which
        ]
        assert [base for base, _ in ranges] == [0, *(upto for _, upto in ranges[:-1])]
        assert ranges[-1][1] == 2 * sum(step[:2] == which and step[2] != "other" for step in steps)
    assert not mailbox
    assert mailbox.take() == []


def test_silence_takes_no_more_room_however_long_it_lasts() -> None:
    mailbox = Mailbox()
    for tick in range(1_000):
        mailbox.put(Deliver("s", "p", tick, tick + 1))
    assert mailbox.take() == [Deliver("s", "p", 0, 1_000)]


@pytest.mark.parametrize(
    ("host", "caller", "patterns", "may"),
    [
        ("127.0.0.1", "127.0.0.1", (), True),
        ("127.0.0.2", "127.0.0.1", (), True),
        ("::1", "127.0.0.1", (), True),
        ("10.1.2.3", "10.1.2.3", (), True),
        ("10.1.2.3", "::ffff:10.1.2.3", (), True),
        ("fd00::1", "fd00::1", (), True),
        # what others cannot reach themselves
        ("127.0.0.1", "10.1.2.3", (), False),
        ("10.1.2.4", "10.1.2.3", (), False),
        ("169.254.169.254", "169.254.169.254", (), False),
        ("0.0.0.0", "127.0.0.1", (), False),
        ("8.8.8.8", "8.8.8.8", (), False),
        ("localhost", "127.0.0.1", (), False),
        # what the operator allows
        ("10.1.2.4", "10.1.2.3", ("10.1.0.0/16",), True),
        ("10.2.2.4", "10.1.2.3", ("10.1.0.0/16",), False),
        ("Push.Example.com", "8.8.8.8", ("*.example.com",), True),
        ("example.com", "8.8.8.8", ("*.example.com", "10.0.0.0/8"), False),
        ("8.8.8.8", "9.9.9.9", ("8.8.8.8",), True),
    ],
)
def test_a_broker_calls_a_client_at_its_own_address_or_where_it_is_allowed_to(
    host: str, caller: str, patterns: tuple[str, ...], may: bool
) -> None:
    assert may_call(host, caller, patterns) is may


def test_a_network_that_is_none_is_refused() -> None:
    check_patterns(["10.0.0.0/8", "*", "fd00::/8"])
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1/8"):
        check_patterns(["10.0.0.1/8"])
