"""Stream: one pubend at one broker (DSN'02; DSN'03 3, 4; docs/architecture.md).

Knowledge comes in from upstream - the neighbour that is followed, or the pubend and its log - and goes out to
the neighbours that follow and to the subscribers here. First-time knowledge is passed on at once, with holes
or without; answers go only to those that asked. All of it is soft state: a broker that lost it asks again.

Silence in the window is complete only for what was wanted when it was learnt (`interest_coverage`). A
follower asks with the interest version that it attached with. It is answered from the window where the window
is complete for that version; for the rest upstream is asked, although the window knows something of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from tidemark.broker.effects import CacheRead, LogRead, ReadCache, ReadLog, SendPeer
from tidemark.broker.streams import answers
from tidemark.broker.streams.answers import Answered, Batches, frames_of, grouped, pace_of
from tidemark.broker.streams.disk_cache import DiskCache, split
from tidemark.broker.streams.interest import HERE, STARTED_ONLY, Interests
from tidemark.broker.streams.interest_coverage import InterestCoverage
from tidemark.broker.streams.listener import Listener
from tidemark.broker.streams.window import Window, rows_within, unexpired
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN, Curiosity, Range, RangeSet, Thresholds, Wants, within
from tidemark.wire.frames import AckExpected, Knowledge, Nack

Ranges = Sequence[Range]

#: Ranges in one nack; more go in further ones.
NACK_RANGES_MAX = 64
#: An announcement of the same tick is passed on no sooner than this after the last.
ANNOUNCED_US = 100_000


class Stream:
    """One pubend's stream through one broker."""

    def __init__(
        self,
        pubend: str,
        interests: Interests,
        turn: Turn,
        window_bytes_max: int,
        thresholds: Thresholds,
        *,
        is_hosted: bool,
        cache: DiskCache | None = None,
    ) -> None:
        self.pubend = pubend
        #: the cache of all streams of this broker; None where there is none, and at the pubend's own broker
        self._cache = cache if cache is not None and cache.is_on and not is_hosted else None
        self.is_hosted = is_hosted
        self._interests = interests
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self.window = Window(window_bytes_max)
        #: the neighbour that is followed; None at the pubend's own broker, and where there is no way to it
        self.upstream: str | None = None
        #: Interest version sent to `upstream` on attach; knowledge tagged lower is ignored.
        self.attached = 0
        #: neighbours that follow, over links that are up; first-time knowledge goes to these. Each with the
        #: newest version of its interest that it knows first-time knowledge to be complete for
        self.followers: dict[str, int] = {}
        #: the stream is known to exist up to this tick
        self.position = TICK_MIN
        #: what is L, as the followers were told it last
        self._lost_told = TICK_MIN
        #: the newest interest version that first-time knowledge has been complete for since then
        self._version = 0
        #: first-time knowledge tagged `attached` or higher has come from `upstream`
        self._is_settled = False
        self._coverage = InterestCoverage()
        #: first-time knowledge up to here came while the window was full, and was not remembered
        self._unkept = TICK_MIN
        #: ranges asked for by neighbours (or HERE) and not yet answered
        self._wants: Wants[str] = Wants()
        #: asker -> the interest version of this broker that an answer has to be complete for
        self._needs: dict[str, int] = {}
        self._curiosity = Curiosity(thresholds, pace_of(thresholds))
        self._gct = thresholds.gct_us
        #: ranges being read from the log of a pubend that is hosted here, and how many bytes of one that ends
        #: at a tick were read so far
        self._reading = RangeSet()
        self._read_bytes: dict[int, int] = {}
        #: the tick that AckExpected announced last, and the monotonic time of that
        self._announced = (TICK_MIN, 0)
        #: the subscribers here; `Host.join` sets it
        self.listener: Listener | None = None

    # Upstream and followers.

    def attach(self, upstream: str, version: int) -> None:
        """The stream comes from this neighbour now, which was told an interest of `version`."""
        self.upstream = upstream
        self.attached = self._version = version
        self._is_settled = False
        self._curiosity.reset(self._turn.now)

    def detach(self) -> None:
        """No neighbour passes the stream on to this broker for the time being."""
        self.upstream = None

    def follow(self, peer: str) -> None:
        """A neighbour follows, or has changed its interest; a new one is told how far the stream reaches.

        `promise` answers it once first-time knowledge is complete for its interest.
        """
        if peer not in self.followers:
            self.followers[peer] = STARTED_ONLY
            if not self._promised(peer):
                self._send(peer, self.position, self.position, True, STARTED_ONLY, None)

    def leave(self, peer: str) -> None:
        """A neighbour does not follow any more, or its link is down: drop what it asked for."""
        self.followers.pop(peer, None)
        self._needs.pop(peer, None)
        for base, upto in self._wants.drop(peer):
            self._curiosity.answered(base, upto)

    def promise(self) -> None:
        """Tell followers and the subscribers here from where on knowledge is complete for what they want.

        This is the answer to an interest: those who wait for it need not wait until there is an event, or
        silence for everybody. It is knowledge of no tick, tagged with the version that first-time knowledge
        beyond it is complete for.
        """
        for peer in list(self.followers):
            self._promised(peer)
        self.promise_here()

    def promise_here(self) -> None:
        """Tell the subscribers here from where on knowledge is complete for what they want."""
        if self.listener is None:
            return
        tag, since = self._promisable(HERE)
        if tag:
            # What the window has beyond that is complete for them too, so they need not start at its end.
            is_begun = self.listener.delivered(self.pubend) is not None and not self.is_hosted
            base = since if is_begun else max(since, self.position)
            self.listener.advanced(self.pubend, tag, base, base)

    def _promised(self, peer: str) -> bool:
        """Promise a follower more than it knows; return whether there was more."""
        tag, since = self._promisable(peer)
        if peer == self.upstream or tag <= self.followers[peer]:
            return False
        self.followers[peer] = tag
        at = max(since, self.position, self.known_upto)
        self._send(peer, at, at, True, tag, None)
        return True

    def _promisable(self, who: str) -> tuple[int, int]:
        """Return the newest version of `who` that all first-time knowledge is complete for beyond a tick."""
        if self.is_hosted:
            return self._interests.tags(self.pubend, None).get(who, 0), self.position
        newest = self._coverage.newest
        return self._interests.tags(self.pubend, newest).get(who, 0), self._coverage.since(newest)

    # From upstream.

    def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
        """First-time knowledge: learn it and pass it on at once."""
        self.lose(lost)
        if upto == base:
            self._stand_at(upto)
            self._complete_beyond(upto, version)
            return
        accounts: int | None = None
        if not self.is_hosted:
            if version < self._version:
                self._overtaken(upto)
                return
            if upto <= self.position and version == self._version and self._knows(base, upto):
                return  # passed on already
            self._settle()
            self._version = version
            accounts = self._coverage.learnt(version, base, self.known_upto)
        is_full = self.window.is_full
        if is_full:
            self.shrink()  # what came before in the same turn has filled it
        if not is_full or self.listener is None or not self.window.is_full:
            self.window.learn(base, upto, batch)
        else:
            self._counters["windows_full"] += 1
            self._unkept = max(self._unkept, upto)
        self.position = max(self.position, upto)
        self._take(base, upto, accounts)
        tags = self._interests.tags(self.pubend, accounts)
        for peer in self.followers:
            if peer != self.upstream:
                tag = tags.get(peer) or STARTED_ONLY
                self.followers[peer] = max(self.followers[peer], tag)
                self._send(peer, base, upto, True, tag, batch)
        self._lost_told = self.window.knowledge.lost
        if self.listener is not None:
            self.listener.advanced(self.pubend, tags.get(HERE, STARTED_ONLY), base, upto)

    @property
    def known_upto(self) -> int:
        """The end of what has come so far, for whatever interest, and also if it was not remembered."""
        return max(self.window.end, self._unkept)

    def _settle(self) -> None:
        """Upstream passes on what this broker wants."""
        if not self._is_settled:
            # Before this, upstream may not have been able to answer: ask again at once.
            self._is_settled = True
            self._curiosity.ask_again()

    def _complete_beyond(self, tick: int, version: int) -> None:
        """Upstream promises that first-time knowledge beyond `tick` is complete for `version`."""
        if self.is_hosted or version < max(self.attached, STARTED_ONLY + 1):
            return
        self._settle()
        if version > self._coverage.newest:
            self._coverage.learnt(version, tick, self.known_upto)
            self.promise()

    def _knows(self, base: int, upto: int) -> bool:
        return self.window.knowledge.known.covers(max(base, self.window.knowledge.lost), upto)

    def _overtaken(self, upto: int) -> None:
        """First-time knowledge came that is tagged lower than `attached`, or than what came before it.

        Something that is wanted by now may have been left out of it, so it counts as not received, and is
        asked for again.
        """
        self._counters["knowledge_overtaken"] += 1
        self._stand_at(upto)

    def _stand_at(self, tick: int) -> None:
        """The stream reaches up to `tick`, and nothing more is known of it: those that lack it will ask.

        This also tells followers what is L by now, if they have not been told.
        """
        is_news = tick > self.position or self.window.knowledge.lost > self._lost_told
        self.position = max(self.position, tick)
        if is_news:
            self._lost_told = self.window.knowledge.lost
            for peer in self.followers:
                if peer != self.upstream:
                    self._send(peer, self.position, self.position, True, STARTED_ONLY, None)
        if self.listener is not None:
            self.listener.advanced(self.pubend, STARTED_ONLY, self.position, self.position)

    def answer(
        self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None, damaged: Ranges = ()
    ) -> None:
        """An answer to a nack: learn it, and pass it to those that asked and that it is complete for.

        If it is of no tick, upstream has answered as much as it does for one nack, and stops there.
        """
        self._answer(base, upto, lost, version, () if batch is None else (batch,), damaged)

    def _answer(
        self, base: int, upto: int, lost: int, version: int, batches: Batches, damaged: Ranges
    ) -> None:
        """Do what `answer` says; the batches are in order."""
        self.lose(lost)
        if upto == base > lost and not self.is_hosted:
            self._curiosity.ask_on(base, self._turn.now)
        base = max(base, lost)
        if upto <= base:
            return
        if not self.is_hosted and version < self.attached:
            self._counters["answers_unsound"] += 1
            return
        accounts = None if self.is_hosted else version
        if not self.is_hosted:
            self._curiosity.heard(base, upto, sum(batch.size for batch in batches), self._turn.now)
        events = Answered(batches)
        if upto > self.window.floor:
            self.window.learn(base, upto, events.batch, damaged)
        if self._cache is not None and base < self.window.floor and not damaged:
            # The window does not keep it, and others may want it too.
            known = min(upto, self.window.floor)
            self._cache.keep(self.pubend, base, known, version, rows_within(events.batch, base, known))
        self._coverage.answered(version, base, upto)
        tags = self._interests.tags(self.pubend, accounts)
        for asker, ranges in self._take(base, upto, accounts).items():
            for first, last in ranges:
                self._give(asker, first, last, events, damaged, tags.get(asker, STARTED_ONLY))

    def _take(self, base: int, upto: int, accounts: int | None) -> Mapping[str, list[Range]]:
        """Return which asker has now got which parts of `(base, upto]`.

        Askers whose interest the knowledge is not complete for keep waiting: `accounts` is its version.
        """

        def lacks(asker: str) -> bool:
            return accounts is not None and accounts < self._needs.get(asker, 0)

        taken = self._wants.take(base, upto, unless=lacks)
        for first, last in self._wants.missing(base, upto):
            self._curiosity.answered(first, last)
        return taken

    def ack_expected(self, tick: int) -> bool:
        """The pubend has logged up to `tick`: those that lack something will ask.

        Returns False, and does nothing, if the same tick was announced a moment ago.
        """
        now = self._turn.now
        if self._announced[0] == tick and now < self._announced[1] + ANNOUNCED_US:
            return False
        self._announced = (tick, now)
        self.position = max(self.position, tick)
        for peer in self.followers:
            if peer != self.upstream:
                self._out.add(SendPeer(peer, AckExpected(self.pubend, tick)))
        if self.listener is not None:
            self.listener.advanced(self.pubend, STARTED_ONLY, self.position, self.position)
        return True

    def lose(self, lost: int) -> None:
        """Everything at or below `lost` is L; the neighbours that asked for some of it are told."""
        if lost <= self.window.knowledge.lost:
            return
        self.window.lose(lost)
        self._coverage.lose(lost)
        self.position = max(self.position, lost)
        self._curiosity.answered(TICK_MIN, lost)
        for asker in self._wants.take(TICK_MIN, lost):
            if asker != HERE:
                self._send(asker, lost, lost, False, STARTED_ONLY, None)
        if self.listener is not None:
            self.listener.lost(self.pubend)

    def tell_lost(self, lost: int) -> None:
        """Everything at or below `lost` is L: all followers are told at once, with knowledge of no tick."""
        self.lose(lost)
        self._stand_at(self.position)

    # From downstream.

    def nacked(self, asker: str, ranges: Iterable[Range], *, version: int = 0, patient: bool = False) -> None:
        """A neighbour (or HERE) asks for ranges: answer what is known, and ask upstream for the rest, once.

        The answer has to be complete for the asker's interest of `version`; for HERE, 0 stands for all that
        has started here. `patient`: what is missing may only be late, so wait for GCT before asking upstream.
        """
        self._counters["nacks_received"] += asker != HERE
        need = self._need(asker, version)
        if need is None:
            self._counters["nacks_dropped"] += 1
            return
        if need:
            self._coverage.need(need)
        missing = self._give_known(asker, list(islice(ranges, answers.RANGES_MAX)), need)
        if asker != HERE and len(missing) > (room := answers.WANTED_RANGES_MAX - self._wants.ranges(asker)):
            self._counters["nacks_dropped"] += 1
            missing = missing[: max(0, room)]
        is_higher = need > max(self._needs.values(), default=0)
        self._needs[asker] = max(self._needs.get(asker, 0), need)
        asked = self._wants.ask(asker, missing)
        self._counters["ranges_consolidated"] += len(missing) > len(asked)
        if is_higher and asked != missing:
            # These ranges were asked for on behalf of an older version: ask for them again.
            for base, upto in missing:
                self._curiosity.answered(base, upto)
            asked = missing
        # A follower that asks for what was before its interest here has come over from another broker, and
        # often many do at once: waiting for GCT lets their nacks leave as one.
        since = self._coverage.since(need) if need else TICK_MIN
        now = self._turn.now
        for base, upto in asked:
            for first, last in self._read_cache(base, upto, need):
                self._ask(first, last, now if patient or first < since else now - self._gct)

    def _read_cache(self, base: int, upto: int, need: int) -> list[Range]:
        """Read from the cache what it has that is complete for `need`; return the parts that are left."""
        if self._cache is None:
            return [(base, upto)]
        reads, left = split(base, upto, self._cache.find(self.pubend, base, upto, need))
        size = 0
        for entry, (first, last) in reads:
            if size >= answers.NACK_BYTES_MAX:
                self._stop(first, upto)
                # What somebody here wants of it is asked for upstream.
                return [each for each in left if each[0] < first] + self.awaited(first, upto)
            if self._cache.begin_read(entry, (first, last)):
                size += entry.bytes
                self._out.add(ReadCache(entry.number, self.pubend, first, last, entry.version))
        return left

    def _stop(self, base: int, upto: int) -> None:
        """Answer no more of `(base, upto]` to neighbours for now: each is told to ask again for its part."""
        for asker, ranges in self._wants.take(base, upto, unless=HERE.__eq__).items():
            for first, _ in ranges:
                self._stop_at(asker, first)

    def _stop_at(self, asker: str, tick: int) -> None:
        """Tell a neighbour that the answer to its nack stops at this tick: knowledge of no tick says so."""
        self._counters["answers_stopped"] += 1
        self._send(asker, tick, tick, False, STARTED_ONLY, None)

    def cached(self, answer: CacheRead) -> None:
        """The cache has answered, or lost what it had: then, or if it is not enough, upstream is asked."""
        asked, version = answer.asked, answer.asked.version
        base, upto = (asked.base, asked.upto) if self._cache is None else self._cache.end_read(asked)
        base = max(base, self.window.knowledge.lost)
        if not answer.is_found and self._cache is not None:
            self._cache.forget(asked.number)
        if upto <= base:
            return
        if answer.is_found:
            self._counters["answers_from_disk"] += 1
            tags = self._interests.tags(self.pubend, version)
            events = Answered(() if answer.batch is None else (answer.batch,))
            for asker, ranges in self._take(base, upto, version).items():
                for first, last in ranges:
                    self._give(asker, first, last, events, (), tags.get(asker, STARTED_ONLY))
        for first, last in self.awaited(base, upto):
            self._ask(first, last, self._turn.now - self._gct)

    def awaited(self, base: int, upto: int) -> list[Range]:
        """Return the parts of `(base, upto]` that a neighbour or somebody here has asked for."""
        return RangeSet(self._wants.wanted()).parts(base, upto)

    def is_awaited_here(self, tick: int) -> bool:
        """Return whether somebody here has asked for this tick and the answer is under way."""
        return self._wants.wants(HERE, tick)

    def accounted(self, base: int, upto: int, version: int) -> list[Range]:
        """Return the parts of `(base, upto]` of which the window knows all that is wanted here by `version`.

        At the pubend's own broker there are none: the log knows more than the window.
        """
        need = None if self.is_hosted else self._interests.accounting(self.pubend, HERE, version)
        if need is None:
            return []
        return self._coverage.covered(self.window.knowledge.known.parts(base, upto), need)

    def _need(self, asker: str, version: int) -> int | None:
        """Return the version of this broker that is complete for the asker's `version`, 0 if everything is.

        None if the nack has to be dropped: the asker will ask again.
        """
        if asker == HERE and not version:
            return 0
        if asker != HERE and asker not in self.followers:
            return None
        if self.is_hosted:
            return 0 if self._interests.tags(self.pubend, None).get(asker, 0) >= version else None
        return self._interests.accounting(self.pubend, asker, version)

    def _give_known(self, asker: str, ranges: Sequence[Range], need: int) -> list[Range]:
        """Give the asker what the window knows completely for `need`; return the ranges that are left.

        A neighbour is given answers.NACK_BYTES_MAX, about, and is to ask again for the rest.
        """
        lost = self.window.knowledge.lost
        room = answers.NACK_BYTES_MAX
        tags = self._interests.tags(self.pubend, None if self.is_hosted else need)
        tag = tags.get(asker, STARTED_ONLY)
        missing: list[Range] = []
        for base, upto in ranges:
            if base < lost:
                self._give(asker, lost, lost, Answered(), (), tag)
                base = lost
            if upto <= base:
                continue
            known = self.window.knowledge.known.parts(base, upto)
            if need:
                known = self._coverage.covered(known, need)
            self._counters["answers_cached"] += bool(known)
            missing += RangeSet(known).gaps(base, upto)
            for first, last in known:
                room = self._give_window(asker, first, last, tag, room)
        return missing

    def _give_window(self, asker: str, base: int, upto: int, tag: int, room: int) -> int:
        """Give what the window has of `(base, upto]`, while there is room; return the bytes that are left."""
        while base < upto:
            if room <= 0 and asker != HERE:
                self._stop_at(asker, base)
                break
            stop = self.window.reach(base, upto)
            damaged = self.window.damaged.parts(base, stop)
            events = self.window.events(base, stop)
            self._give(asker, base, stop, Answered(() if events is None else (events,)), damaged, tag)
            room -= events.size if events is not None else 0
            base = stop
        return room

    def _ask(self, base: int, upto: int, now: int) -> None:
        if self.is_hosted:
            for first, last in self._reading.add(base, upto):
                self._out.add(ReadLog(self.pubend, first, last))
        else:
            self._curiosity.want(base, upto, now)

    def read(self, answer: LogRead) -> None:
        """The log of the pubend hosted here has answered, or begun to."""
        self._reading.remove(answer.base, answer.upto)
        self._counters["ranges_damaged"] += len(answer.damaged)
        damaged = RangeSet(answer.damaged)
        at = answer.base
        for batches in grouped(answer.batches, are_shared=self._wants.askers() == [HERE]):
            last = int(batches[-1].ticks[-1])
            self._answer(at, last, answer.lost, 0, batches, damaged.parts(at, last))
            at = last
        self._answer(at, answer.upto, answer.lost, 0, (), damaged.parts(at, max(at, answer.upto)))
        self._read_on(answer)

    def _read_on(self, answer: LogRead) -> None:
        """Read the rest of a range, unless it has had as much as is read for one nack of a neighbour."""
        size = self._read_bytes.pop(answer.asked, 0) + sum(batch.size for batch in answer.batches)
        if answer.asked <= answer.upto:
            return
        if size < answers.NACK_BYTES_MAX:
            self._read_bytes[answer.asked] = size
            self._out.add(ReadLog(self.pubend, answer.upto, answer.asked))
            return
        self._stop(answer.upto, answer.asked)
        self._reading.remove(answer.upto, answer.asked)
        for first, last in self.awaited(answer.upto, answer.asked):
            self._ask(first, last, self._turn.now)

    # Time.

    def wake(self) -> None:
        """Send the nacks that are due."""
        if self.upstream is None:
            return
        due = self._curiosity.due(self._turn.now)
        if not due:
            return
        waiting = self._wants.askers()
        self._needs = {asker: need for asker, need in self._needs.items() if asker in waiting}
        version = max([self.attached, *self._needs.values()])
        for at in range(0, len(due), NACK_RANGES_MAX):
            ranges = tuple(due[at : at + NACK_RANGES_MAX])
            self._counters["nacks_sent"] += 1
            self._out.add(SendPeer(self.upstream, Nack(self.pubend, ranges, version)))

    def shrink(self) -> None:
        """Let the window go back to its bound, as far as what is here has been consumed."""
        keep = self.listener.delivered(self.pubend) if self.listener is not None else None
        save = None if self._cache is None else self._save
        self._counters["windows_shrunk"] += self.window.shrink(keep, save)

    def _save(self, base: int, upto: int) -> None:
        """Write what the window knows of `(base, upto]` to the cache."""
        assert self._cache is not None
        for known in self.window.knowledge.known.parts(base, upto):
            for first, last, version in self._coverage.versions(*known):
                while first < last:
                    stop = self.window.reach(first, last)
                    if not self.window.damaged.parts(first, stop):
                        events = self.window.events(first, stop)
                        self._cache.keep(self.pubend, first, stop, version, events)
                    first = stop

    def next_wake(self) -> int | None:
        """Return the monotonic time when the next nack is due; None if there is none."""
        return self._curiosity.next_due() if self.upstream is not None else None

    # Out.

    def _give(self, asker: str, base: int, upto: int, events: Answered, damaged: Ranges, tag: int) -> None:
        if asker != HERE:
            self._send(asker, base, upto, False, tag, events.batch, damaged)
        elif self.listener is not None:
            self.listener.answered(self.pubend, base, upto, events.batches, damaged)

    def _send(
        self,
        peer: str,
        base: int,
        upto: int,
        first: bool,
        tag: int,
        batch: EventBatch | None,
        damaged: Ranges = (),
    ) -> None:
        part = rows_within(batch, base, upto)
        if part is not None:
            before, part = part.count, unexpired(part, self._turn.wall)
            self._counters["events_expired"] += before - (part.count if part is not None else 0)
        selection = self._interests.selection(self.pubend, peer)
        if part is not None and selection is not None:
            wanted = selection.wanted(part)
            self._counters["events_left_out"] += part.count - int(wanted.sum())
            part = None if not wanted.any() else part if wanted.all() else part.take(wanted)
        if first and part is not None and self._turn.observer.is_tracing:
            self._turn.observer.passed_on(self.pubend, peer, part)
        lost = self.window.knowledge.lost
        for start, stop, rows in ((base, upto, part),) if first else frames_of(base, upto, part):
            inside = tuple(within(damaged, start, stop)) if damaged else ()
            self._out.add(SendPeer(peer, Knowledge(self.pubend, start, stop, lost, first, tag, rows, inside)))
