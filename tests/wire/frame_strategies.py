"""Frames of every kind, drawn by hypothesis: small, valid, with odd names and extreme numbers."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.generations import GENERATION_MAX
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.frames import (
    Ack,
    Acked,
    AckExpected,
    Answer,
    Ask,
    Claim,
    Connect,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Fetched,
    Frame,
    Gap,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Lease,
    Leased,
    Line,
    LinkGrade,
    Links,
    Nack,
    Offer,
    Overlay,
    Ping,
    Pong,
    Publish,
    Published,
    Pushing,
    Recall,
    Recalled,
    RecallMore,
    RecallOver,
    Refused,
    Release,
    ReleaseRow,
    Rest,
    Resume,
    Subscribe,
    Subscribed,
    Together,
    Topic,
    Unfollow,
    Unsubscribe,
    Unsubscribed,
    Ways,
    Welcome,
    Yielded,
)
from tidemark.wire.limits import (
    CREDIT_BYTES_MAX,
    INCARNATION_MAX,
    MOVE_MAX,
    OVERLAY_VERSION_MAX,
    RECALLS_MAX,
    SECONDS_MAX,
    SEQUENCE_MAX,
    STAMP_MAX,
    TICKET_MAX,
)
from tidemark.wire.moving.frames import Come, Leave, Left
from tidemark.wire.peer_layouts import MERGED
from tidemark.wire.security.frames import Access, Challenge, LinkProof, Login, Proof

KINDS: tuple[type[Any], ...] = tuple(dict.fromkeys(get_args(Frame)))


def batch_of(ticks: list[int], *, message: bytes = b"message", topic: str = "t") -> EventBatch:
    """Events at these ticks, all alike."""
    builder = BatchBuilder()
    for _ in ticks:
        builder.add(Shape(topic, 7), message, publisher="p", key=b"k")
    batch = builder.build()
    batch.fill_ticks(np.array(ticks, np.int64))
    return batch


def naming(publishers: int) -> EventBatch:
    """A batch that names so many publishers, each with about 200 bytes."""
    builder = BatchBuilder()
    for number in range(publishers):
        builder.add(Shape("t", 7), b"message", publisher=f"{number:0200}")
    return builder.build()


def bytes_of(*frames: Frame) -> bytes:
    """The bytes of a frame, as a socket carries them."""
    return b"".join(b"".join(encode(frame)) for frame in frames)


ticks = st.integers(TICK_FIRST, TICK_LAST) | st.integers(-5, 50) | st.just(TICK_MIN) | st.just(TICK_LAST)
endless = ticks | st.just(TICK_MAX)
counts = st.integers(0, TICKET_MAX) | st.integers(0, 9)
moves = st.integers(1, MOVE_MAX) | st.integers(1, 9)
logged = st.integers(0, SEQUENCE_MAX - 1) | st.integers(0, 9)
amounts = st.integers(0, CREDIT_BYTES_MAX) | st.integers(0, 9)
stamps = st.integers(0, STAMP_MAX)
lives = st.integers(0, INCARNATION_MAX)
shorts = st.integers(0, 0xFFFF)
texts = st.text(max_size=20)
#: text that can be in a name: no control characters
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), max_size=8)
names = words | st.just("é" * 127) | st.just("n" * 255)
pubends = words.filter(bool)
tokens = st.dictionaries(pubends, ticks, max_size=4).map(CheckpointToken)


def ranges(low: int = TICK_FIRST, high: int = TICK_LAST) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    """Ranges in order within `(low, high]`, some of them touching."""
    low = max(low, TICK_FIRST)
    if high <= low:
        return st.just(())
    bounds = st.lists(st.integers(low, high), unique=True, max_size=8).map(sorted)
    return bounds.map(lambda ends: tuple(zip(ends[::2], ends[1::2], strict=False)))


@st.composite
def stretches(draw: st.DrawFn) -> tuple[int, int, EventBatch | None]:
    """A range, and events in it or none."""
    base, upto = sorted((draw(ticks), draw(ticks)))
    if base == upto or draw(st.booleans()):
        return base, upto, None
    inside = draw(st.sets(st.integers(max(base + 1, TICK_FIRST), upto), min_size=1, max_size=5))
    return base, upto, batch_of(sorted(inside), message=draw(st.binary(max_size=20)), topic=draw(texts))


@st.composite
def knowledge(draw: st.DrawFn, *, is_first: bool = False) -> Knowledge:
    base, upto, batch = draw(stretches())
    damaged = draw(ranges(base, upto) | st.just(()))
    first = is_first or draw(st.booleans())
    return Knowledge(draw(names), base, upto, draw(ticks), first, draw(counts), batch, damaged)


@st.composite
def deliveries(draw: st.DrawFn) -> Deliver:
    return Deliver(draw(names), draw(names), *draw(stretches()))


@st.composite
def gaps(draw: st.DrawFn) -> Gap:
    base, upto, _ = draw(stretches())
    return Gap(draw(names), draw(names), base, upto)


@st.composite
def fetched(draw: st.DrawFn) -> Fetched:
    base, upto, batch = draw(stretches())
    return Fetched(draw(counts), draw(names), base, upto, draw(ticks), batch, draw(ranges()))


@st.composite
def fetches(draw: st.DrawFn) -> Fetch:
    base, upto, _ = draw(stretches())
    return Fetch(draw(counts), draw(names), base, upto, draw(names), draw(texts), draw(amounts))


@st.composite
def recalls(draw: st.DrawFn) -> Recall:
    """Lines in order, with and without holes between them."""
    ends = sorted(draw(st.sets(ticks, min_size=2, max_size=7)))
    pairs = zip(ends[::2], ends[1::2], strict=False)
    lines = tuple(Line(TopicSelector(draw(names), draw(texts)), base, upto) for base, upto in pairs)
    return Recall(draw(counts), draw(names), ends[0], ends[-1], lines, draw(amounts))


@st.composite
def recalled(draw: st.DrawFn) -> Recalled:
    base, upto, batch = draw(stretches())
    return Recalled(draw(counts), base, upto, batch, draw(ranges(base, upto) | st.just(())))


batches = st.lists(ticks, min_size=1, max_size=5).map(batch_of)
wanted = st.lists(st.builds(TopicSelector, names, texts), max_size=4).map(tuple)
rows = st.lists(st.builds(ReleaseRow, names, counts, endless, endless, st.booleans()), max_size=3).map(tuple)
acks = st.dictionaries(names, tokens, max_size=3).map(lambda of: tuple(of.items()))
credit = st.builds(Credit, names, st.integers(1, CREDIT_BYTES_MAX))

OF_KIND: dict[type[Any], st.SearchStrategy[Any]] = {
    Hello: st.builds(Hello, names, lives, shorts, shorts),
    Knowledge: knowledge(),
    Nack: st.builds(Nack, names, ranges(), counts),
    AckExpected: st.builds(AckExpected, names, ticks),
    Release: st.builds(Release, names, rows),
    Heard: st.builds(Heard, names, names, counts, ticks),
    Interest: st.builds(Interest, names, counts, st.none() | wanted),
    Unfollow: st.builds(Unfollow, names, counts),
    Overlay: st.builds(Overlay, st.integers(0, OVERLAY_VERSION_MAX), names, texts),
    Ways: st.builds(
        Ways,
        st.lists(names, max_size=4).map(tuple),
        st.lists(st.builds(LinkGrade, names, shorts), max_size=4).map(tuple),
    ),
    Links: st.builds(Links, names, counts, st.lists(names, max_size=4).map(tuple)),
    Claim: st.builds(Claim, names, counts, names, st.booleans(), names, names),
    Yielded: st.builds(Yielded, names, counts, names),
    Topic: st.builds(
        Topic,
        names,
        st.booleans(),
        st.lists(texts, max_size=4).map(tuple),
        st.integers(0, GENERATION_MAX),
    ),
    Ping: st.builds(Ping, counts),
    Pong: st.builds(Pong, counts),
    Connect: st.builds(Connect, names, shorts, shorts),
    Welcome: st.builds(Welcome, names, lives, shorts, st.lists(names, max_size=4).map(tuple)),
    Describe: st.builds(Describe, names, st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple)),
    Publish: st.builds(Publish, names, names, st.integers(1, SEQUENCE_MAX - 9), batches),
    Published: st.builds(Published, names, names, counts, ticks),
    Leave: st.builds(Leave, names, names, logged, moves, names),
    Left: st.builds(Left, names, names, logged, ticks, counts, names),
    Come: st.builds(Come, names, names, logged, moves),
    Subscribe: st.builds(
        Subscribe, names, names, texts, st.booleans(), amounts, st.none() | tokens, stamps, names
    ),
    Subscribed: st.builds(Subscribed, names, tokens, tokens),
    Deliver: deliveries(),
    Gap: gaps(),
    Ack: st.builds(Ack, acks, counts, st.lists(credit, max_size=3).map(tuple)),
    Acked: st.builds(Acked, counts),
    Credit: credit,
    Unsubscribe: st.builds(Unsubscribe, names),
    Unsubscribed: st.builds(Unsubscribed, names),
    Lease: st.builds(Lease, st.integers(0, SECONDS_MAX), names, names),
    Leased: st.builds(Leased, st.integers(0, SECONDS_MAX), names),
    Rest: st.builds(Rest, st.integers(0, SECONDS_MAX)),
    Pushing: st.builds(Pushing, names, names),
    Resume: st.builds(Resume, names, shorts, shorts),
    Ask: st.builds(Ask, counts, names, texts),
    Answer: st.builds(Answer, counts, texts),
    Fetch: fetches(),
    Fetched: fetched(),
    Offer: st.builds(Offer, st.integers(0, RECALLS_MAX)),
    Recall: recalls(),
    Recalled: recalled(),
    RecallMore: st.builds(RecallMore, counts, amounts),
    RecallOver: st.builds(RecallOver, counts),
    Refused: st.builds(Refused, names, names, names, texts, st.lists(names, max_size=4).map(tuple)),
    Login: st.builds(Login, st.lists(names, max_size=4).map(tuple), texts),
    Proof: st.builds(Proof, names, texts),
    Challenge: st.builds(Challenge, names),
    LinkProof: st.builds(LinkProof, names),
    Access: st.builds(Access, st.integers(0, OVERLAY_VERSION_MAX), names, texts),
}

merged = st.one_of(*(OF_KIND[kind] for kind in MERGED - {Knowledge}), knowledge(is_first=True))
OF_KIND[Together] = st.lists(merged, min_size=1, max_size=4).map(tuple).map(Together)

frames: st.SearchStrategy[Frame] = st.one_of(*OF_KIND.values())
