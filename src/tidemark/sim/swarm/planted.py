"""Planted bugs: the protocol with one mistake each, to show that the simulator would notice it.

A bug patches the real classes while it is planted; no broker can reach this module. A bug counts as found
when a world breaks the promise that the bug breaks, not any promise: `notices` has words of that violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tidemark.broker.broker import Broker
from tidemark.broker.effects import CacheWritten
from tidemark.broker.hosting import catchup_streams, constream
from tidemark.broker.hosting.acknowledgements import Acknowledgements
from tidemark.broker.hosting.catchup_streams import CatchupStreams, SharedTicks
from tidemark.broker.hosting.constream import Constream
from tidemark.broker.hosting.handover import Handover
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.match_log import RecentMatches
from tidemark.broker.outgoing import HistoryQueue
from tidemark.broker.publishing import pubend
from tidemark.broker.publishing.fetching import Fetching
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.publishing.release import NOBODY, Hosts, Releases, Rows
from tidemark.broker.publishing.release_reports import ReleaseReports
from tidemark.broker.streams.interest_coverage import InterestCoverage
from tidemark.broker.streams.stream import Stream
from tidemark.broker.topics import Topics
from tidemark.message.batches.batch import EventBatch
from tidemark.message.generations import removal_of
from tidemark.persistence import cache_store
from tidemark.persistence.cache_store import CacheStore
from tidemark.persistence.pfs_store import PfsStore
from tidemark.persistence.vouching import Vouching
from tidemark.sim.swarm.bug import Bug, Patch
from tidemark.sim.swarm.forgotten_moves import FORGOTTEN_MOVES
from tidemark.sim.swarm.forgotten_rules import FORGOTTEN_RULES
from tidemark.storage.events import event_log
from tidemark.storage.events.event_log import EventLog
from tidemark.storage.log.segments.scan import _Scanner
from tidemark.ticks import TICK_MAX, TICK_MIN, Curiosity, Pace
from tidemark.wire.peer_layouts import singly

# At the pubend.


def _acknowledge_before_sync() -> list[Patch]:
    def at_once(self: Pubend, action: Callable[[], None], failed: Callable[[], None]) -> None:
        del self, failed
        action()

    return [(Pubend, "_when_durable", at_once)]


def _no_deduplication() -> list[Patch]:
    received = Pubend.received

    def forgetful(self: Pubend, client: int, frame: Any, owner: str = "") -> None:
        known = self._publishers.get(frame.publisher)
        if known is not None and frame.sequence <= known[0]:
            self._publishers.appended(frame.publisher, (frame.sequence - 1, known[1]))
        received(self, client, frame, owner)

    def unchecked(self: EventLog, publisher: str, published: Any) -> Callable[[], None]:
        return self._publishers.note(publisher, published)

    # The log has a check of its own, which would stop the broker first.
    return [(Pubend, "received", forgetful), (EventLog, "_note", unchecked)]


def _knowledge_before_sync() -> list[Patch]:
    append = Pubend._append

    def hasty(self: Pubend, publisher: str, last: int, batch: Any) -> None:
        append(self, publisher, last, batch)
        self._pass_on(self.position, int(batch.ticks[-1]), batch)

    return [(Pubend, "_append", hasty)]


def _log_the_first_in_a_row() -> list[Patch]:
    return [(pubend, "concatenate", lambda batches: batches[0])]


def _forget_the_lease() -> list[Patch]:
    begin, begin_log = Pubend.__init__, EventLog.__init__

    def forgetful(self: Pubend, name: str, state: Any, *rest: Any) -> None:
        begin(self, name, replace(state, lease=TICK_MIN), *rest)

    def unchecked(self: EventLog, *arguments: Any, **options: Any) -> None:
        begin_log(self, *arguments, **options)
        self._floor = TICK_MIN

    return [(Pubend, "__init__", forgetful), (EventLog, "__init__", unchecked)]


def _cut_at_the_first_bad_record() -> list[Patch]:
    step = _Scanner.step

    def hasty(self: _Scanner, at: int) -> int:
        regions = len(self.regions)
        following = step(self, at)
        return following if len(self.regions) == regions else len(self.data)

    return [(_Scanner, "step", hasty)]


def _trust_the_tables() -> list[Patch]:
    def trusting(self: Vouching, *, accept: bool) -> None:
        del self, accept

    return [(Vouching, "check_tables", trusting)]


def _answer_from_a_former_life() -> list[Patch]:
    begin, write = CacheStore.__init__, CacheStore.write

    def recovering(self: CacheStore, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        if self._volume is not None:
            first, last = self._volume.bounds(cache_store.STREAM)
            for record in self._volume.read_some(cache_store.STREAM, first, last, bytes_max=None).records:
                self._index_of[cache_store.HEAD.unpack_from(record.payload)[0]] = record.index

    def trusting(self: CacheStore, effect: Any) -> Any:
        # The numbers of entries count from 1 in every life.
        return CacheWritten(effect.number) if effect.number in self._index_of else write(self, effect)

    return [
        (CacheStore, "__init__", recovering),
        (CacheStore, "write", trusting),
        (cache_store, "empty", lambda _: None),
    ]


def _free_by_the_first_to_expire() -> list[Patch]:
    def hasty(batch: EventBatch) -> int | None:
        validity = batch.prelude("validity_ms").astype(int)
        return int((batch.ticks + validity * 1_000)[validity > 0].min()) if validity.any() else None

    return [(event_log, "expires_at", hasty)]


# Of topics.


def _an_old_creation_counts() -> list[Patch]:
    heard = Topics.heard

    def believing(self: Topics, peer: str, frame: Any) -> None:
        registry = self._registry
        if registry.generation(frame.topic) == removal_of(frame.generation) > frame.generation:
            registry.topics[frame.topic] = registry.removed[frame.topic].pop(frame.generation)
        heard(self, peer, frame)

    return [(Topics, "heard", believing)]


# On the way.


def _leave_out_in_doubt() -> list[Patch]:
    attach = Stream.attach

    def bold(self: Stream, upstream: str, version: int) -> None:
        del version
        attach(self, upstream, 0)

    return [(Stream, "attach", bold)]


def _answer_before_the_version() -> list[Patch]:
    def bold(self: InterestCoverage, known: Any, version: int) -> list[Any]:
        del self, version
        return list(known)

    return [(InterestCoverage, "covered", bold)]


def _reroute_that_skips() -> list[Patch]:
    first = Stream.first

    def hasty(self: Stream, base: int, upto: int, lost: int, version: int, batch: Any) -> None:
        # What the new neighbour begins with follows upon what the old one ended with.
        is_new = not self.is_hosted and self._version == self.attached and upto > base
        if is_new and TICK_MIN < self.window.end < base and version >= self.attached:
            self.window.learn(self.window.end, base, None)
        first(self, base, upto, lost, version, batch)

    return [(Stream, "first", hasty)]


def _release_by_arrival() -> list[Patch]:
    received = Hosts.received

    def careless(self: Hosts, peer: str, row: Any, neighbourhood: Any, lost: int) -> None:
        if row.host in self._rows:
            self._rows[row.host] = replace(self._rows[row.host], sequence=0)
        if row.host in self._known:
            self._known[row.host] = 0
        received(self, peer, row, neighbourhood, lost)

    return [(Hosts, "received", careless)]


def _unknown_has_released() -> list[Patch]:
    def careless(self: Hosts, here: Any) -> Any:
        rows = [self._rows[host] for host in self._known & self._rows.keys()]
        released, delivered = here or NOBODY
        return (
            min([released, *(row.released for row in rows)]),
            min([delivered, *(row.delivered for row in rows)]),
        )

    return [(Hosts, "total", careless)]


def _raise_overtakes() -> list[Patch]:
    learn, unsaid = Rows.learn, Rows.unsaid

    def remembering(self: Rows, peer: str, row: Any, now: int) -> None:
        highest: dict[str, Any] = self.__dict__.setdefault("highest", {})
        highest[row.host] = max(highest.get(row.host, row.released), row.released)
        learn(self, peer, row, now)

    def mixed_up(self: Rows, to: str, *, is_due: bool = True, asking_only: bool = False) -> Any:
        # What was held back leaves when it is due, as if it were the newest.
        rows = unsaid(self, to, is_due=is_due, asking_only=asking_only)
        highest = self.__dict__.get("highest", {})
        return tuple(replace(row, released=highest[row.host]) for row in rows) if is_due else rows

    return [(Rows, "learn", remembering), (Rows, "unsaid", mixed_up)]


def _skip_a_hold() -> list[Patch]:
    def late(self: Acknowledgements, pubend: str) -> list[int]:
        # The row that holds is often in time without being waited for: here it says so only when something
        # was acknowledged.
        started = (each for each in self._subscriptions.values() if each.durable and pubend in each.starts)
        ticks = [(each, each.saved.get(pubend, each.starts[pubend])) for each in started]
        return [tick for each, tick in ticks if not each.holding.epoch or tick > each.starts[pubend]]

    return [
        (Releases, "is_in_force", lambda _self, _pubend, _tick: True),
        (Acknowledgements, "_held", late),
    ]


def _go_on_from_memory() -> list[Patch]:
    def bold(self: RecentMatches, base: int, subscriber: int) -> Any:
        # As if memory reached back to wherever somebody is.
        return beyond(self, max(self.base, min(base, self.upto)), subscriber)

    beyond = RecentMatches.beyond
    return [(RecentMatches, "beyond", bold)]


def _remember_too_much() -> list[Patch]:
    def bold(self: Stream, base: int, upto: int, version: int) -> list[Any]:
        del version
        return [] if self.is_hosted else self.window.knowledge.known.parts(base, upto)

    return [(Stream, "accounted", bold)]


def _apply_in_part() -> list[Patch]:
    frame_of = Broker._peer_frame

    def partial(self: Broker, peer: str, frame: Any) -> None:
        # Of what came together only the first is handled, as if it had come alone.
        frame_of(self, peer, singly(frame)[0])

    return [(Broker, "_peer_frame", partial)]


def _nack_once() -> list[Patch]:
    due = Curiosity.due

    def once(self: Curiosity, now: int) -> Any:
        ranges = due(self, now)
        for base, upto in ranges:
            self.answered(base, upto)
        return ranges

    return [(Curiosity, "due", once)]


def _ask_again_and_again() -> list[Patch]:
    def impatient(self: Pace, asked: int, tries: int) -> int:
        del self, tries
        return asked + 50_000

    def again(self: Fetching, peer: str, frame: Any) -> None:
        # A repetition is another question, under another ticket.
        self._of_owner.get(peer, {}).pop(frame.ticket, None)
        passed(self, peer, frame)

    passed = Fetching.passed
    return [
        (Pace, "due", impatient),
        (Pace, "patience_us", lambda _self, _tries: 50_000),
        (HistoryQueue, "rest", lambda _self, frame, _gone: [frame]),
        (Fetching, "passed", again),
    ]


# At the subscribers' host.


def _let_silence_go() -> list[Patch]:
    return [(Pubend, "_last_event", lambda _, upto: upto)]


def _start_at_a_moment() -> list[Patch]:
    expected = Constream.expected

    def impatient(self: Constream, tag: int, base: int, upto: int, versions: dict[int, int]) -> None:
        del tag
        expected(self, TICK_MAX, base, upto, versions)

    return [(Constream, "expected", impatient)]


def _change_at_a_moment() -> list[Patch]:
    into_force = Host._come_into_force

    def careless(self: Host, pubend: str, stream: Any, subscription: Any, period: Any, tick: int) -> None:
        into_force(self, pubend, stream, subscription, period, tick)
        at = subscription.periods.index(period)
        for other in subscription.periods[:at]:
            subscription.periods.remove(other)
            self._forget(other)
        self._interests.note_change()

    return [(Host, "_come_into_force", careless)]


def _rewind_who_is_ahead() -> list[Patch]:
    def trusting(self: Host, pubend: str, subscription: Any, upto: int, part: Any, _: Any) -> None:
        self._delivery.tell(subscription, pubend, subscription.told[pubend], upto, part)

    return [(Host, "feed", trusting)]


def _tell_and_catch_up() -> list[Patch]:
    feed = Host.feed

    def both(self: Host, pubend: str, subscription: Any, upto: int, part: Any, shared: Any) -> None:
        is_slow, told = subscription.credit <= 0, subscription.told[pubend]
        feed(self, pubend, subscription, upto, part, shared)
        if is_slow and subscription.durable and told < part.ticks[0]:
            self._delivery.tell(subscription, pubend, told, upto, part)

    return [(Host, "feed", both)]


def _join_before_the_end() -> list[Patch]:
    catch_up = CatchupStreams._catch_up

    def early(self: CatchupStreams, pubend: str, subscription: Any, catchup: Any) -> None:
        catch_up(self, pubend, subscription, catchup)
        stream = self._constreams[pubend]
        if subscription.id in stream.catchups and (stream.delivered or 0) - catchup.position < 50_000:
            del stream.catchups[subscription.id]

    return [(CatchupStreams, "_catch_up", early)]


def _share_by_number() -> list[Patch]:
    def careless(self: SharedTicks, ticks: Any) -> Any:
        return self._known.setdefault((len(ticks), 0, 0), ticks)

    return [(SharedTicks, "of", careless)]


def _deliver_the_expired() -> list[Patch]:
    def everything(batch: Any, wall: int) -> Any:
        del wall
        return batch

    return [(constream, "unexpired", everything), (catchup_streams, "unexpired", everything)]


def _keep_a_token_in_memory() -> list[Patch]:
    save = Acknowledgements.save

    def hasty(self: Acknowledgements, numbers: Any, done: Callable[[], None] = lambda: None) -> None:
        save(self, numbers)
        done()

    return [(Acknowledgements, "save", hasty)]


def _unknown_is_silence() -> list[Patch]:
    read = PfsStore.read

    def sure(self: PfsStore, effect: Any) -> Any:
        answer = read(self, effect)
        upto = answer.upto if answer.unknown is None else answer.unknown[1]
        return replace(answer, upto=upto, unknown=None)

    return [(PfsStore, "read", sure)]


def _no_fencing() -> list[Patch]:
    return [(Handover, "_yield", lambda *_, **__: None)]


def _do_not_hold_who_moved() -> list[Patch]:
    def careless(self: Acknowledgements, pubend: str) -> list[int]:
        durable = (each for each in self._subscriptions.values() if each.durable and not each.holding.epoch)
        return [each.saved.get(pubend, each.starts[pubend]) for each in durable if pubend in each.starts]

    return [
        (Acknowledgements, "_held", careless),
        (ReleaseReports, "hold", lambda _self, _subscription, done: done()),
    ]


BUGS = {
    "ack-before-sync": Bug(
        "a publisher is told before its event is on disk",
        _acknowledge_before_sync,
        ("acknowledged and not on disk",),
    ),
    "no-dedup": Bug("a batch that is sent again is logged again", _no_deduplication, ("is logged twice",)),
    "knowledge-before-sync": Bug(
        "events are passed on before they are on disk",
        _knowledge_before_sync,
        ("which is not durable", "was not wanted or not published"),
    ),
    "first-in-a-row": Bug(
        "of the batches that a publisher has sent in a row only the first is logged",
        _log_the_first_in_a_row,
        ("acknowledged and not on disk", "is missing"),
    ),
    "forget-lease": Bug(
        "after a crash, silence that was advertised may turn into events",
        _forget_the_lease,
        ("is missing",),
        "crashes",
    ),
    "expire-early": Bug(
        "a batch is let go when its first event has expired, although others were promised",
        _free_by_the_first_to_expire,
        ("go as expired, which is still valid",),
    ),
    "stale-cache": Bug(
        "a cache on disk answers with what an earlier life of its broker has written",
        _answer_from_a_former_life,
        ("is missing", "of silence at"),
        profile="crashes",
    ),
    "cut-at-bad-record": Bug(
        "recovery cuts a log at the first record that is damaged",
        _cut_at_the_first_bad_record,
        ("was durable and is gone",),
        "disk",
    ),
    "trust-tables": Bug(
        "a broker starts with tables that are gone or older than other stores know",
        _trust_the_tables,
        ("let go up to", "is missing", "and hosted by", "and told to go on from", "told up to"),
        "disk",
    ),
    "filter-in-doubt": Bug(
        "silence is believed that does not account for what is wanted",
        _leave_out_in_doubt,
        ("of silence at", "is missing"),
    ),
    "answer-before-version": Bug(
        "a relay answers with silence that it learnt before the asker came",
        _answer_before_the_version,
        ("of silence at", "is missing"),
    ),
    "reroute-skips": Bug(
        "what lies between an old way and a new one is not asked for",
        _reroute_that_skips,
        ("is missing", "of silence at"),
    ),
    "release-by-arrival": Bug(
        "the last row of a host to arrive holds, not the last that it sent",
        _release_by_arrival,
        ("let go up to", "a gap that nothing justifies"),
        profile="network",
    ),
    "no-fencing": Bug(
        "a broker keeps a subscription that another one has claimed", _no_fencing, ("and hosted by",)
    ),
    "release-past-moving": Bug(
        "what a subscriber that moved has not consumed is not held where it comes to",
        _do_not_hold_who_moved,
        ("let go up to", "a gap that nothing justifies"),
    ),
    "silence-goes": Bug("the silence behind events goes with them", _let_silence_go, ("lets silence go",)),
    "unknown-released": Bug(
        "who has not reported counts as having released all",
        _unknown_has_released,
        ("let go up to", "a gap that nothing justifies"),
    ),
    "raise-overtakes": Bug(
        "a row that was held back because it only raises something is passed on after a lower one",
        _raise_overtakes,
        ("let go up to", "a gap that nothing justifies"),
    ),
    "hold-skipped": Bug(
        "a pubend is taken to hold for a subscriber that moved, although it was never told to",
        _skip_a_hold,
        ("let go up to", "a gap that nothing justifies"),
    ),
    "window-in-doubt": Bug(
        "a subscriber that moved gets the silence of a window that does not account for what it wants",
        _remember_too_much,
        ("is missing",),
    ),
    "merged-in-part": Bug(
        "of the frames that came together only the first is handled",
        _apply_in_part,
        ("never started at", "but there is an event at", "and hosted by", "let go up to", "of silence at"),
    ),
    "nack-once": Bug(
        "a nack that is lost is never repeated", _nack_once, ("but there is an event at", "never started at")
    ),
    "fetch-storm": Bug(
        "what is under way is asked for again and again, and each time it is answered",
        _ask_again_and_again,
        ("that nobody waited for",),
        profile="thin",
    ),
    "start-at-a-moment": Bug(
        "a subscriber starts before its interest is known upstream",
        _start_at_a_moment,
        ("is missing", "of silence at"),
    ),
    "change-at-a-moment": Bug(
        "what was wanted before a change is forgotten at once",
        _change_at_a_moment,
        ("is missing", "of silence at", "where not all is gone"),
    ),
    "rewind": Bug(
        "a subscriber that is ahead of its host gets events again",
        _rewind_who_is_ahead,
        ("a range that goes back", "ticks out of order"),
    ),
    "tell-and-catch-up": Bug(
        "a slow subscriber is told what it then catches up on as well",
        _tell_and_catch_up,
        ("ticks out of order", "a range that goes back"),
    ),
    "memory-in-doubt": Bug(
        "a catchup stream takes what was matched lately for all that was matched since it left",
        _go_on_from_memory,
        ("is missing",),
    ),
    "join-early": Bug(
        "a catchup stream joins the constream before it has reached it", _join_before_the_end, ("is missing",)
    ),
    "others-rows": Bug(
        "returning subscribers whom as many events matched share those of the first of them",
        _share_by_number,
        ("was not wanted or not published", "is missing"),
    ),
    "deliver-expired": Bug(
        "events are delivered after their validity", _deliver_the_expired, ("which has expired",)
    ),
    "token-in-memory": Bug(
        "a token that the broker keeps is acknowledged before it is on disk",
        _keep_a_token_in_memory,
        ("and told to go on from",),
    ),
    "hole-is-silence": Bug(
        "what the PFS does not know counts as silence", _unknown_is_silence, ("is missing",)
    ),
    "old-creation": Bug(
        "a creation of a topic that a neighbour tells counts, although it is known to be removed",
        _an_old_creation_counts,
        ("brokers disagree about the generations", "was confirmed"),
    ),
    **FORGOTTEN_MOVES,
    **FORGOTTEN_RULES,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within this context the bug `name` is in place."""
    with ExitStack() as stack:
        for where, what, new in BUGS[name].patches():
            stack.enter_context(patch.object(where, what, new))
        yield
