"""Admin: a broker's answers to administrators, who ask over the protocol that every client speaks.

A question has a name and a JSON object of arguments; an answer is JSON of the dataclasses in `wire.answers`.
Questions about the process around the broker, such as connections and disks, are answered by `node.admin`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.effects import Owed, SendClient
from tidemark.broker.hosting.constream import Constream
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.owed import OwedOf
from tidemark.broker.hosting.sessions import Sessions
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.observer import Particulars
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.publishing.reach import EventSearch, range_of
from tidemark.broker.publishing.release import Hosts
from tidemark.broker.turn import Turn
from tidemark.errors import TidemarkError
from tidemark.message.generations import removal_of
from tidemark.message.registry import Registry, TopicSchemas
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire import answers
from tidemark.wire.answers import (
    HostForgotten,
    HostStatus,
    PubendStatus,
    StreamStatus,
    SubscriptionProgress,
    SubscriptionRemoved,
    SubscriptionStatus,
    TopicStatus,
)
from tidemark.wire.frames import Answer, Ask, Fetch, Refused
from tidemark.wire.json_objects import dumps, read_arguments
from tidemark.wire.questions import TooLongError, items_max, page_of

T = TypeVar("T")

#: Changes of a subscription that the arguments name.
_OF_SUBSCRIPTIONS = frozenset((answers.REMOVE.what, answers.SEEK.what, answers.SELECT.what))

#: The longest cursor of a page: the name of a topic.
AFTER_CHARACTERS_MAX = 255
#: What the JSON object of a question's arguments says.
Arguments = Mapping[str, object]


class AdminError(TidemarkError):
    """A question cannot be answered; `code` is one of wire.frames.REFUSALS."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class CountedAnswer:
    """An answer that says what subscriptions are owed, which has to be counted first."""

    subscriptions: tuple[HostedSubscription, ...]
    #: makes the text of the answer when it is counted
    build: Callable[[OwedOf], str]


@dataclass(frozen=True, slots=True)
class SearchedAnswer:
    """An answer that the logs of pubends have to be read for."""

    asked: Fetch
    events: int


#: What answers a question: text, or what has to be found out first; None if there is nothing to say.
Found = str | CountedAnswer | SearchedAnswer | None


class Admin:
    """Answers the questions about one broker.

    Every collection belongs to the broker, and is read here when a question comes.
    """

    def __init__(
        self,
        host: Host,
        sessions: Sessions,
        registry: Registry,
        pubends: Mapping[str, Pubend],
        hosts: Mapping[str, Hosts],
        turn: Turn,
        access: AccessControl,
    ) -> None:
        self._host = host
        self._access = access
        self._sessions = sessions
        self._registry = registry
        self._pubends = pubends
        self._hosts = hosts
        self._fetching = host.fetching
        self._turn = turn
        self._out = turn.out
        #: questions that only look, asked by a client, and such that change something
        self._questions: dict[str, Callable[[int, Arguments], object]] = {
            answers.TOPICS.what: self._topics_page,
            answers.REACH.what: self._reach,
            answers.PUBENDS.what: lambda client, _: self._pubends_for(client),
            answers.STREAMS.what: lambda client, _: self._streams_for(client),
            answers.SUBSCRIPTIONS.what: lambda _, given: self._subscriptions_page(given),
            answers.SUBSCRIPTION.what: self._subscription_for,
            answers.HOSTS.what: lambda *_: self.hosts(),
        }
        self._changes: dict[str, Callable[[Arguments], object]] = {
            answers.REMOVE.what: self._remove,
            answers.SEEK.what: self._seek,
            answers.SELECT.what: self._select,
            answers.ARCHIVED.what: self._archived,
            answers.LET_GO.what: self._let_go,
            answers.FORGET_HOST.what: self._forget_host,
        }

    def asked(self, client: int, frame: Ask) -> None:
        """Answer the question of a client, or refuse it with a code and a reason."""
        with self._turn.looking:
            found = _tried(lambda: self._look(client, frame))
            before = self._particulars(frame)
        if found is None:
            found = _tried(lambda: _said(self._changes[frame.what](read_arguments(frame.arguments))))
        if frame.what in self._changes:
            self._tell(client, frame, before, found)
        if isinstance(found, CountedAnswer):
            build = found.build
            self._host.owed.count(
                found.subscriptions, lambda owed: self._reply(client, frame, _tried(lambda: build(owed)))
            )
        elif isinstance(found, SearchedAnswer):
            EventSearch(
                self._fetching,
                client,
                found.asked,
                found.events,
                lambda reached: self._reply(client, frame, dumps(reached)),
                lambda code, reason: self._reply(client, frame, AdminError(code, reason)),
                sees_all=self._access.sees_all(client),
            )
        else:
            self._reply(client, frame, found)

    @property
    def known(self) -> frozenset[str]:
        """The questions that are answered here."""
        return frozenset((*self._questions, *self._changes))

    def _tell(self, client: int, frame: Ask, before: Particulars | None, found: Found | AdminError) -> None:
        """Tell the observer what became of a change, once it is on disk."""
        who, answered = self._access.owner(client), self._turn.observer.answered
        if isinstance(found, AdminError):
            answered(who, frame, before, None, (found.code, str(found)))
            return
        after = self._particulars(frame)
        self._host.after_save(lambda: answered(who, frame, before, after, None))

    def _particulars(self, frame: Ask) -> Particulars | None:
        """Return what the subscription is that a change is about; None if it is about none."""
        if frame.what not in _OF_SUBSCRIPTIONS:
            return None
        name = _tried(lambda: read_arguments(frame.arguments).get("name"))
        found = self._sessions.find(name) if isinstance(name, str) else None
        if found is None:
            return None
        wanted, token = found.current.wanted, CheckpointToken(found.released)
        return {
            "topic": wanted.pattern,
            "selector": wanted.selector,
            "checkpoint": token.text(),
            "owner": found.owner,
        }

    def _reply(self, client: int, frame: Ask, found: str | AdminError | None) -> None:
        if isinstance(found, AdminError):
            reason = str(found)
            self._out.add(SendClient(client, Refused("ask", str(frame.ticket), found.code, reason)))
            return
        # An answer says that a change was made, so the change has to be on disk first.
        answer = SendClient(client, Answer(frame.ticket, found or ""))
        self._host.after_save(lambda: self._out.add(answer))

    def _look(self, client: int, frame: Ask) -> Found:
        """Return the answer to a question that only looks; None for one that changes something.

        Raises TidemarkError if there is no such question, or if its arguments cannot be read.
        """
        given = read_arguments(frame.arguments)
        if frame.what in self._questions:
            return _said(self._questions[frame.what](client, given))
        if frame.what not in self._changes:
            known = ", ".join(sorted(self.known))
            raise AdminError("unknown", f"there is no question {frame.what!r}: ask {known}")
        return None

    # What concerns those who ask, where there are accounts.

    def _reach(self, client: int, given: Arguments) -> SearchedAnswer:
        """Return what to search for: of the events that the client may read, as if it fetched them."""
        asked, events = range_of(given)
        checked = self._access.checked(client, asked)
        if isinstance(checked, Refused):
            raise AdminError(checked.code, checked.reason)
        assert isinstance(checked, Fetch)
        return SearchedAnswer(checked, events)

    def _topics_page(self, client: int, given: Arguments) -> str:
        topics = self._topics(client, _after(given))
        known = (each for each in topics if self._access.may_know(client, each[1].topic))
        return page_of(known, len(self._registry.topics), given)

    def _pubends_for(self, client: int) -> list[PubendStatus]:
        """Return the pubends; what is published, and what others have read, is for those who may monitor.

        Others read up to the position. They are not told that there is no event: a reader would ask for none.
        """
        found = self.pubends()
        if self._access.may_monitor(client):
            return found
        return [
            replace(each, last_event=each.position, released=None, bytes=0, publishers=0) for each in found
        ]

    def _streams_for(self, client: int) -> list[StreamStatus]:
        """Return the streams; those who may not monitor are told how far they have got, as a queue asks.

        What they are not told is 0, none or empty.
        """
        found = self.streams()
        if self._access.may_monitor(client):
            return found
        return [
            StreamStatus(each.pubend, each.position, each.delivered, None, TICK_MIN, 0, None, (), 0)
            for each in found
        ]

    def _subscription_for(self, client: int, given: Arguments) -> CountedAnswer:
        found = self._named(given, client)
        if not self._access.may_monitor(client) and not self._access.may_touch(client, found):
            raise AdminError("unknown", f"there is no subscription {found.name!r} at this broker")
        if self._access.may_monitor(client):
            return self._counted_one(found)
        return CountedAnswer((found,), lambda owed: dumps(self._for_owner(client, found, owed)))

    def _for_owner(self, client: int, found: HostedSubscription, owed: OwedOf) -> SubscriptionStatus:
        """Return a subscription as its owner may know it: without what its rules of today keep from it.

        What is owed is not told where an earlier rule has chosen it, or a field that is hidden now.
        """
        status, pattern = self.subscription(found, owed), found.current.wanted.pattern
        is_same = self._access.seen(client, pattern) == found.view.seen
        if self._access.chooses_by_hidden(client, found):
            is_same, status = False, replace(status, over_quota=False)
        pubends = {
            pubend: progress
            if is_same
            and not (
                found.view.seen and found.has_changed_since(pubend, found.released.get(pubend, TICK_MIN))
            )
            else replace(progress, lag_us=None, owed_events=0, owed_bytes=0, is_exact=False)
            for pubend, progress in status.pubends.items()
        }
        selector = self._access.shown(client, pattern, status.selector)
        return replace(status, selector=selector, pubends=pubends)

    def _subscriptions_page(self, given: Arguments) -> CountedAnswer:
        after, total = _after(given), len(self._host.subscriptions)
        listed = islice(self._listed(after), items_max(total, given))
        return CountedAnswer(
            tuple(listed), lambda owed: page_of(self._subscriptions(after, owed), total, given)
        )

    def _counted_one(self, subscription: HostedSubscription) -> CountedAnswer:
        return CountedAnswer((subscription,), lambda owed: dumps(self.subscription(subscription, owed)))

    def _topics(self, client: int, after: str) -> Iterator[tuple[str, TopicStatus]]:
        """Yield the topics whose cursors come after `after`, with all versions of their schemas.

        A topic that was removed comes too, since its events may still be there, and each creation by itself.
        """
        registry = self._registry
        names = registry.known_names
        for at in range(bisect_left(names, after.partition("\0")[0]), len(names)):
            for found in registry.creations_of(names[at]):
                if (cursor := _cursor(found)) <= after:
                    continue
                exists = registry.topics.get(found.topic) is found
                generation = found.creation if exists else removal_of(found.creation)
                shown = self._access.versions(client, found.topic, found.texts)
                yield cursor, TopicStatus(found.topic, found.is_open, tuple(shown.values()), generation)

    def pubends(self) -> list[PubendStatus]:
        """Return the pubends that this broker hosts."""
        return [pubend.describe() for _, pubend in sorted(self._pubends.items())]

    def streams(self) -> list[StreamStatus]:
        """Return the stream of every pubend as it is at this broker."""
        return [
            StreamStatus(
                pubend=name,
                position=constream.stream.position,
                delivered=constream.delivered,
                synced=constream.synced,
                lost=constream.stream.window.knowledge.lost,
                window_bytes=constream.stream.window.bytes,
                upstream=constream.stream.upstream,
                followers=tuple(sorted(constream.stream.followers)),
                catching_up=len(constream.catchups),
            )
            for name, constream in sorted(self._host.constreams.items())
        ]

    def hosts(self) -> list[HostStatus]:
        """Return the brokers that may have subscribers of the pubends here, and how far they are."""
        return [host for _, hosts in sorted(self._hosts.items()) for host in hosts.describe()]

    def _forget_host(self, given: Arguments) -> HostForgotten:
        """Strike off a broker that is gone for good: events that only its subscribers hold may be let go."""
        name = str(given.get("host"))
        removed = [pubend for pubend, hosts in sorted(self._hosts.items()) if hosts.remove(name)]
        if not removed:
            known = sorted({host for hosts in self._hosts.values() for host in hosts.known})
            raise AdminError("unknown", f"no pubend here waits for {name!r}: those it waits for are {known}")
        return HostForgotten(name, tuple(removed))

    def _listed(self, after: str) -> Iterator[HostedSubscription]:
        """Yield the subscriptions that this broker hosts, by their ids, from the one after `after` on."""
        ids = sorted(self._host.subscriptions)
        for number in ids[bisect_right(ids, int(after)) if after.isdecimal() else 0 :]:
            yield self._host.subscriptions[number]

    def _subscriptions(self, after: str, owed: OwedOf) -> Iterator[tuple[str, SubscriptionStatus]]:
        for each in self._listed(after):
            yield str(each.id), self.subscription(each, owed)

    def subscription(self, subscription: HostedSubscription, owed: OwedOf) -> SubscriptionStatus:
        """Return one subscription, with its progress in each pubend and what it is owed there."""
        return SubscriptionStatus(
            name=subscription.name,
            durable=subscription.durable,
            connected=subscription.client is not None,
            pattern=subscription.current.wanted.pattern,
            selector=subscription.current.wanted.selector,
            changing=len(subscription.periods) > 1,
            credit=subscription.credit,
            checkpoint=CheckpointToken(subscription.released).text(),
            pubends={
                pubend: self._progress(subscription, pubend, constream, owed.get((subscription.id, pubend)))
                for pubend, constream in sorted(self._host.constreams.items())
            },
            over_quota=subscription.is_over_quota,
            gaps=subscription.gaps,
            slow=subscription.slow,
        )

    def _progress(
        self, subscription: HostedSubscription, pubend: str, constream: Constream, owed: Owed | None
    ) -> SubscriptionProgress:
        lag = None
        if owed is not None:
            lag = 0 if owed.oldest is None else max(0, self._turn.wall - owed.oldest)
        return SubscriptionProgress(
            start=subscription.starts.get(pubend),
            acknowledged=subscription.released.get(pubend),
            told=subscription.told.get(pubend),
            lag_us=lag,
            catching_up=subscription.id in constream.catchups,
            recall=self._host.catchup_streams.recalls.state(pubend, subscription.id),
            owed_events=owed.events if owed is not None else 0,
            owed_bytes=owed.bytes if owed is not None else 0,
            is_exact=owed is None or owed.is_exact,
        )

    def _named(self, given: Arguments, client: int | None = None) -> HostedSubscription:
        """Return the subscription that the arguments name, the client's own if there are several of the name.

        AdminError if this broker does not have it.
        """
        name = given.get("name")
        found = self._sessions.find(name, client) if isinstance(name, str) else None
        if found is None:
            raise AdminError("unknown", f"there is no subscription {name!r} at this broker")
        return found

    def _remove(self, given: Arguments) -> SubscriptionRemoved:
        """Remove a subscription for good; one that is connected only with `force`."""
        subscription = self._named(given)
        if subscription.client is not None and not given.get("force"):
            raise AdminError("taken", f"{subscription.name!r} is connected: stop it first, or force it")
        self._sessions.expel(subscription)
        return SubscriptionRemoved(subscription.name)

    def _seek(self, given: Arguments) -> CountedAnswer:
        """Move a subscription that is not connected forward: earlier events are acknowledged unseen."""
        subscription = self._named(given)
        if subscription.client is not None:
            raise AdminError("taken", f"{subscription.name!r} is connected: stop it first")
        to = given.get("to", "now")
        if to == "now":
            ticks = {p: c.delivered for p, c in self._host.constreams.items() if c.delivered is not None}
            token = CheckpointToken(ticks)
        elif isinstance(to, int):
            token = CheckpointToken(dict.fromkeys(subscription.starts, to))
        else:
            token = CheckpointToken.parse(str(to))
        before = dict(subscription.released)
        limits = {p: c.delivered for p, c in self._host.constreams.items()}
        for pubend, tick in token.items():
            limit = limits.get(pubend)
            if pubend in before and (tick < before[pubend] or limit is None or tick > limit):
                raise AdminError(
                    "frame",
                    f"{pubend}: {tick} is not between what it has acknowledged, {before[pubend]}, and what "
                    f"has been delivered here, {limit}; to see events again, subscribe with a checkpoint",
                )
        subscription.acknowledge(token)
        self._host.acknowledgements.save([subscription.id])
        return self._counted_one(subscription)

    def _select(self, given: Arguments) -> CountedAnswer:
        """Change the selector of a durable subscription that is not connected."""
        subscription, where = self._named(given), given.get("where", "")
        if subscription.client is not None or not subscription.durable or not subscription.is_kept:
            raise AdminError("taken", f"{subscription.name!r} is connected: stop it first")
        if subscription.holding.moved_to is not None:
            raise AdminError(
                "unknown", f"{subscription.name!r} is at another broker: {subscription.holding.moved_to}"
            )
        if not isinstance(where, str):
            raise AdminError("frame", "a selector is a text")
        refusal = self._sessions.select(subscription, where)
        if refusal is not None:
            raise AdminError(refusal.code, refusal.reason)
        return self._counted_one(subscription)

    def _archived(self, given: Arguments) -> list[PubendStatus]:
        """Note how far the archive has got, which says so with a checkpoint token."""
        for name, tick in self._token_of_archive(given).items():
            pubend = self._pubends[name]
            pubend.archived = max(pubend.archived or TICK_MIN, min(tick, pubend.position))
        return self.pubends()

    def _let_go(self, given: Arguments) -> list[PubendStatus]:
        """Let go what the archive has up to a checkpoint token, except what live subscribers still lack."""
        for name, tick in self._token_of_archive(given).items():
            self._pubends[name].dismiss(tick)
        return self.pubends()

    def _token_of_archive(self, given: Arguments) -> CheckpointToken:
        """Return the token that the archive says; AdminError if it is not one of pubends with an archive."""
        token = CheckpointToken.parse(str(given.get("token", "")))
        for name in token:
            if name not in self._pubends:
                raise AdminError("pubend", f"the pubend {name!r} is not hosted here")
            if self._pubends[name].archived is None:
                raise AdminError("unknown", f"{name!r} is not set up for an archive: set retention.archive")
        return token


def _cursor(topic: TopicSchemas) -> str:
    """Return by what a page of topics goes on: by the name, or for a later creation right after it."""
    return f"{topic.topic}\0{topic.creation:04}" if topic.creation else topic.topic


def _after(given: Arguments) -> str:
    """Return where the page that is asked for begins; "" for the first."""
    return str(given.get("after", ""))[:AFTER_CHARACTERS_MAX]


def _said(found: object) -> str | CountedAnswer | SearchedAnswer:
    """Return what a question found as text, unless it is still to be found out."""
    return found if isinstance(found, str | CountedAnswer | SearchedAnswer) else dumps(found)


def _tried(answer: Callable[[], T]) -> T | AdminError:
    """Return what `answer` returns, or its error if that is one that whoever asks should be told."""
    try:
        return answer()
    except AdminError as error:
        return error
    except TooLongError as error:
        return AdminError("limit", str(error))
    except TidemarkError as error:
        return AdminError("frame", str(error))
