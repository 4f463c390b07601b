"""Sessions: the subscribers of a broker as clients - their names, their requests, and the answers to those.

There is one durable subscription of a name, and the newer connection of a name wins. It exists from the
moment it is on disk until it is ended. Any other subscription is passing: it ends with its connection. Each
user has names of its own for these, so that nobody learns from a name that is taken what another user has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice

from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.effects import SendClient
from tidemark.broker.hosting.admission import Admission, is_change, wanted_by
from tidemark.broker.hosting.handover import Handover, Holds
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.subscription import HostedSubscription, RuledView, SelectorPeriod
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.matching.topics import TopicPattern
from tidemark.ticks import TICK_MAX, CheckpointToken
from tidemark.ticks.tick import CLOCKS_APART_MAX
from tidemark.wire.frames import Ack, Acked, Credit, Refused, Subscribe, Unsubscribe, Unsubscribed

#: Subscriptions of clients that are gone that are removed each time that the broker is woken.
LEAVING_MAX = 8
#: Of which the last may take them beyond so many places in the matchers of topics.
LEAVING_TOPICS_MAX = 128
#: Subscriptions without a topic that are checked each time that the broker is woken after one has come, and
#: names of topics that are compared with patterns to find out which.
CHECKED_MAX = 32
COMPARED_MAX = 1_024
#: If more topics have come at a time, they are looked for among all that there are.
CAME_MAX = 64


class Sessions:
    """All subscriptions by name, and the connections they have."""

    def __init__(
        self,
        me: str,
        host: Host,
        admission: Admission,
        turn: Turn,
        holds: Holds,
        neighbourhood: Neighbourhood,
        access: AccessControl,
    ) -> None:
        self._host = host
        self._admission = admission
        self._consumed = admission.consumed
        admission.durables = host.durables
        self._access = access
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        #: name -> the durable subscription
        self._by_name = {each.name: each for each in host.subscriptions.values()}
        #: name -> owner -> the passing subscription; an owner has no passing and durable one of one name
        self._passing: dict[str, dict[str, HostedSubscription]] = {}
        #: client -> ids of its subscriptions; only this class changes it, and `Admission` counts them
        self._by_client = admission.by_client
        for subscription in host.subscriptions.values():
            admission.own(subscription.owner)
        #: ids of subscriptions that are not durable and whose client is gone; `settle` removes them in slices
        self._leaving: dict[int, None] = {}
        self.handover = Handover(me, turn, self, holds, neighbourhood)
        self._next_id = 1
        #: ids of connected subscriptions for which there was no topic when they came
        self._without_topic: set[int] = set()
        #: topics that have come, with which these have still to be compared
        self._topics_came: dict[str, None] = {}
        #: topics that came before those, and which of these have still to be compared with them, the first
        #: one last
        self._compared: dict[str, None] = {}
        self._unchecked: list[int] = []

    def recover(self, next_subscriber: int) -> None:
        """After a crash: claim again what came from other brokers, since that may not have settled.

        `next_subscriber`: no subscriber ever had this id or a higher one.
        """
        self._next_id = max([next_subscriber, *(number + 1 for number in self._host.subscriptions)])
        for subscription in self._by_name.values():
            if subscription.holding.epoch:
                self.handover.claim(subscription)

    # Coming and going.

    def subscribe(self, client: int, frame: Subscribe) -> None:
        """A subscriber comes, for the first time or again; it is refused or told Subscribed."""
        known = self._passing_of(client, frame.name)
        if known is not None and known.id in self._leaving:
            self.remove(known)
            known = None
        if known is None:
            known = self._by_name.get(frame.name)
            if known is not None and not frame.durable and not self._access.may_touch(client, known):
                known = None
        with self._turn.looking:
            refusal = self._admission.refusal(client, frame, known)
        if refusal is not None:
            self._refuse(client, frame.name, *refusal)
        elif known is None:
            self._create(client, frame)
        elif not known.is_kept:
            self._by_client.setdefault(client, set())
            # What is waited for is in a commit that has not been reported yet, or in the one being reported.
            self._turn.tables.after(partial(self._subscribe_again, client, frame))
        elif (
            known.holding.moved_to is not None
            or _is_from_another_broker(frame, known)
            or self._access.chooses_by_hidden(client, known)
        ):
            self._take_back(client, frame, known)
        elif is_change(frame, known):
            self._change(client, frame, known)
        else:
            self._connect(client, frame, known)

    def _create(self, client: int, frame: Subscribe, *, was_here: bool = False, owner: str = "") -> None:
        subscription = HostedSubscription(self._next_id, frame.name, frame.durable, [])
        subscription.is_kept = not frame.durable
        self._give(subscription, owner or self._access.owner(client))
        made_at = self.handover.next_epoch(frame.name, self._came(frame), subscription.owner)
        subscription.holding.made_at = made_at
        if frame.token is not None and frame.durable:
            subscription.holding.epoch = made_at
        subscription.replays = frame.token is not None and not frame.durable
        self._next_id += 1
        if frame.durable:
            self._by_name[frame.name] = subscription
        else:
            self._passing.setdefault(frame.name, {})[subscription.owner] = subscription
        self._host.enter(subscription, SelectorPeriod(wanted_by(frame)), frame.token)
        if frame.durable:
            self._by_client.setdefault(client, set()).add(subscription.id)
            created = partial(self._created, client, frame, subscription, was_here=was_here)
            self._host.save(subscription, created)
        else:
            self._connect(client, frame, subscription)

    def _subscribe_again(self, client: int, frame: Subscribe) -> None:
        """The subscription that another connection was making is on disk now: go on with this connection."""
        if client in self._by_client:
            self.subscribe(client, frame)

    def _created(
        self, client: int, frame: Subscribe, subscription: HostedSubscription, *, was_here: bool
    ) -> None:
        subscription.is_kept = True
        is_there = subscription.id in self._by_client.get(client, ())
        if subscription.holding.moved_to is not None and is_there:
            came = self._came(frame)
            if not frame.stamp or self.handover.is_latest(frame.name, came, subscription.owner):
                # Another broker had claimed the subscription before, which was not known here.
                self.subscribe(client, frame)
            else:
                self._by_client[client].discard(subscription.id)
                self._tell_moved(client, subscription, subscription.holding.moved_to)
            return
        if self._by_name.get(frame.name) is not subscription:
            return
        if subscription.holding.epoch and not is_there and not was_here:
            self.remove(subscription)  # its client was never told of it, and another broker still holds it
            return
        if is_there and subscription.client is None:
            self._connect(client, frame, subscription)
        if subscription.holding.epoch:
            self.handover.claim(subscription, frame.last)

    def _came(self, frame: Subscribe) -> int:
        """Return when the subscriber came, by its own clock, the same at whichever broker.

        A clock that is far ahead counts for nothing: other brokers would refuse such an epoch.
        """
        wall = self._turn.wall
        return frame.stamp if 0 < frame.stamp <= wall + CLOCKS_APART_MAX else wall

    def _take_back(self, client: int, frame: Subscribe, subscription: HostedSubscription) -> None:
        """The subscriber was, or may have been, at another broker meanwhile: treat it as coming from there.

        So is one whose selector of before chose by a field that is hidden from it now: which events that were
        would tell what the field says. Its present selector holds for all that it has not acknowledged.

        What it was told there is not known here. At pubends that its token does not name it was told nothing.
        """
        token = CheckpointToken({**subscription.released, **(frame.token or {})})
        last = subscription.holding.moved_to or frame.last
        self._end_older(client, subscription)
        self.remove(subscription)
        # An administrator may take what belongs to a user, who has it still.
        self._create(client, replace(frame, token=token, last=last), was_here=True, owner=subscription.owner)

    def _change(self, client: int, frame: Subscribe, subscription: HostedSubscription) -> None:
        """The subscriber has changed its selector; until the new one starts at a pubend the old one holds."""
        self._host.change(subscription, SelectorPeriod(wanted_by(frame)))
        self._host.save(subscription, lambda: None)
        self._connect(client, frame, subscription)

    def select(self, subscription: HostedSubscription, selector: str) -> Refused | None:
        """Change the selector of a subscription whose subscriber is away; return why not, or None.

        What its owner may not see stays out of it. Until the new one starts at a pubend the old one holds.
        """
        pattern = subscription.current.wanted.pattern
        frame = self._access.as_owner(
            subscription.owner, Subscribe(subscription.name, pattern, selector, True, 0)
        )
        if isinstance(frame, Refused):
            return frame
        refusal = self._admission.misfit(frame, subscription)
        if refusal is not None:
            return Refused("subscribe", subscription.name, *refusal)
        if is_change(frame, subscription):
            self._host.change(subscription, SelectorPeriod(wanted_by(frame)))
            self._host.save(subscription, lambda: None)
        return None

    def _connect(self, client: int, frame: Subscribe, subscription: HostedSubscription) -> None:
        """Give the subscription to the newer connection; its token decides where the subscriber goes on."""
        self._end_older(client, subscription)
        self._by_client.setdefault(client, set()).add(subscription.id)
        self._admission.note_scan(client, frame, subscription.id)
        subscription.holding.connected_at = self._came(frame)
        subscription.view = RuledView(
            self._access.seen(client, frame.pattern),
            self._access.hidden(client, frame.pattern),
            self._access.sees_all(client),
        )
        if not subscription.owner and (owner := self._access.owner(client)):
            # A subscription from before there were accounts goes to the first user that may have its name.
            self._admission.disown(subscription.owner)
            self._give(subscription, owner)
            if subscription.durable:
                self._host.save(subscription, lambda: None)
        token = frame.token if frame.token is not None else CheckpointToken(subscription.released)
        self._host.connect(subscription, client, frame.credit, token)
        if frame.selector and not self._admission.has_topic(frame.pattern):
            self._without_topic.add(subscription.id)

    def _give(self, subscription: HostedSubscription, owner: str) -> None:
        """Let a principal own a subscription that nobody owns."""
        subscription.owner = owner
        self._admission.own(owner)

    def topic_removed(self, topic: str) -> None:
        """A topic is removed: subscribers that wanted it wait, as for one that was never there."""
        self._topics_came.pop(topic, None)
        self._compared.pop(topic, None)
        for subscription in self._host.wanting(topic):
            if subscription.client is not None and subscription.current.wanted.selector:
                self._without_topic.add(subscription.id)

    def topic_created(self, topic: str) -> None:
        """A topic has come: who waits for one may have waited for it."""
        if self._without_topic:
            self._topics_came[topic] = None

    def _check_without_topic(self) -> None:
        """A topic has come: end the part of subscribers whose selector does not fit theirs, and say why.

        They would wait for ever. There may be many of them: some are checked each time.
        """
        if not self._unchecked:
            self._compared, self._topics_came = self._topics_came, {}
            self._unchecked = sorted(self._without_topic, reverse=True)
        checked = compared = 0
        while self._unchecked and checked < CHECKED_MAX and compared < COMPARED_MAX:
            number = self._unchecked.pop()
            subscription = self._host.subscriptions.get(number)
            client = subscription.client if subscription is not None else None
            if subscription is None or client is None:
                self._without_topic.discard(number)
                continue
            wanted = subscription.current.wanted
            has_come, names = self._has_come(wanted.pattern)
            compared += names
            checked += has_come
            if has_come:
                self._without_topic.discard(number)
                problem = self._admission.problem(
                    wanted.pattern, wanted.selector, is_ruled=bool(subscription.view.seen)
                )
                if problem is not None:
                    self._refuse(client, subscription.name, *problem)
                    self._part(client, subscription)

    def _has_come(self, pattern: str) -> tuple[bool, int]:
        """Return whether one of the topics that are compared is one of a pattern, and how much that took."""
        parsed = TopicPattern.parse(pattern)
        if parsed.is_exact:
            return pattern in self._compared, 1
        if len(self._compared) > CAME_MAX:
            return self._admission.has_topic(pattern), CAME_MAX
        return any(parsed.matches(name) for name in self._compared), len(self._compared)

    def _end_older(self, client: int, subscription: HostedSubscription) -> None:
        """Take the subscription from the connection that has it, if any, and tell that one why."""
        if subscription.client is None:
            return
        self._by_client[subscription.client].discard(subscription.id)
        if subscription.client != client:
            self._counters["fences"] += 1
            reason = f"{subscription.name!r} has connected again elsewhere, which ends this connection's part"
            self._refuse(subscription.client, subscription.name, "taken", reason)

    def gone(self, client: int) -> None:
        """A connection is gone: its durable subscriptions stay, others end, a few in each turn."""
        self._admission.forget_scans(client)
        for number in sorted(self._by_client.pop(client, ())):
            subscription = self._host.subscriptions.get(number)
            if subscription is None or subscription.client != client:
                continue  # another connection took or ended the subscription before it was on disk
            self._part(client, subscription)

    def _part(self, client: int, subscription: HostedSubscription) -> None:
        """Take the subscription from its connection: it stays if it is durable, and else ends soon."""
        self._by_client.get(client, set()).discard(subscription.id)
        self._host.disconnect(subscription)
        if not subscription.durable:
            self._leaving[subscription.id] = None

    @property
    def is_leaving(self) -> bool:
        """Whether subscriptions have still to be removed or checked, and the broker is to be woken for it."""
        return bool(self._leaving or self._unchecked)

    def wake(self) -> None:
        """Do what is due: claims that nobody has answered."""
        self.handover.wake()

    def settle(self, *, is_woken: bool) -> None:
        """Remove some of the subscriptions whose client is gone, and check some that waited for a topic.

        The broker is woken again for the others. Where there are many, nobody's frame has to wait for it.
        """
        if not is_woken and (len(self._leaving) > LEAVING_MAX or len(self._without_topic) > CHECKED_MAX):
            return
        topics = 0
        if self._unchecked or self._topics_came:
            self._check_without_topic()
        for number in list(islice(self._leaving, LEAVING_MAX)):
            subscription = self._host.subscriptions[number]
            del self._leaving[number]
            topics += self._host.joined_topics(subscription)
            self.remove(subscription)
            if topics > LEAVING_TOPICS_MAX:
                break

    def unsubscribe(self, client: int, frame: Unsubscribe) -> None:
        """End a subscription for its own connection, or for any connection while it has none."""
        subscription = self._passing_of(client, frame.name) or self._by_name.get(frame.name)
        if subscription is None or not self._access.may_touch(client, subscription):
            self._refuse(client, frame.name, "unknown", "there is no such subscription", "unsubscribe")
        elif subscription.client not in (None, client):
            reason = "it is connected elsewhere: close that first"
            self._refuse(client, frame.name, "taken", reason, "unsubscribe")
        else:
            self.handover.ended(subscription)
            self.remove(subscription)
            ended = partial(self._out.add, SendClient(client, Unsubscribed(frame.name)))
            self._host.after_save(ended)

    def expel(self, subscription: HostedSubscription) -> None:
        """An administrator ends a subscription; the connection that has it is told."""
        if subscription.client is not None:
            reason = "an administrator has removed this subscription"
            self._refuse(subscription.client, subscription.name, "unknown", reason)
        self.handover.ended(subscription)
        self.remove(subscription)

    def remove(self, subscription: HostedSubscription) -> None:
        """Drop a subscription, so that it holds nothing any more."""
        self._leaving.pop(subscription.id, None)
        if subscription.durable:
            del self._by_name[subscription.name]
        else:
            of_name = self._passing[subscription.name]
            del of_name[subscription.owner]
            if not of_name:
                del self._passing[subscription.name]
        self._admission.disown(subscription.owner)
        if subscription.client is not None:
            self._by_client.get(subscription.client, set()).discard(subscription.id)
        self._host.leave(subscription)

    # While a subscriber is connected.

    def acknowledge(self, client: int, frame: Ack) -> None:
        """Subscribers acknowledge; tokens of subscriptions that this connection no longer has are ignored.

        With a ticket, the acknowledgement is saved as a whole and then confirmed, or refused as a whole. A
        token of what cannot have been told yet is refused in any case; without a ticket that ends the
        connection's part, since nobody waits for an answer.
        """
        known = [(found, token) for name, token in frame.tokens if (found := self._of(client, name))]
        if frame.ticket and len(known) < len(frame.tokens):
            self._refuse_ack(client, frame)
            return
        limits: dict[str, int] = {}
        problem_of = self._consumed.problem
        problems = [problem_of(token, subscription.told, limits) for subscription, token in known]
        if frame.ticket and any(problems):
            reason = next(problem for problem in problems if problem is not None)
            self._refuse(client, str(frame.ticket), "token", f"{reason}; nothing was kept", "ack")
            return
        for (subscription, token), problem in zip(known, problems, strict=True):
            if problem is not None:
                self._refuse(client, subscription.name, "token", f"{problem}; it was not kept")
                self._part(client, subscription)
                continue
            subscription.acknowledge(token)
            self._host.acknowledgements.note(subscription)
        if frame.ticket:
            durable = [subscription.id for subscription, _ in known if subscription.durable]
            answer = SendClient(client, Acked(frame.ticket))
            self._host.acknowledgements.save(durable, partial(self._out.add, answer))

    def _refuse_ack(self, client: int, frame: Ack) -> None:
        """Refuse an acknowledgement of which a part is not of this connection's subscriptions.

        It is not told whether another user has one of that name.
        """
        stranger = next(name for name, _ in frame.tokens if self._of(client, name) is None)
        found = self._passing_of(client, stranger) or self._by_name.get(stranger)
        is_taken = found is not None and self._access.may_touch(client, found)
        code = "taken" if is_taken else "unknown"
        reason = f"{stranger!r} is not a subscription of this connection any more: nothing was kept"
        self._refuse(client, str(frame.ticket), code, reason, "ack")

    def grant(self, client: int, frame: Credit) -> None:
        """A subscriber can take more bytes."""
        subscription = self._of(client, frame.name)
        if subscription is not None:
            self._host.grant(subscription, frame.bytes)

    def find(self, name: str, client: int | None = None) -> HostedSubscription | None:
        """Return the subscription of this name; None if it is not here.

        It is the client's own passing one, or else the durable one, or else a passing one of anybody.
        """
        mine = self._passing_of(client, name) if client is not None else None
        return mine or self._by_name.get(name) or next(iter(self._passing.get(name, {}).values()), None)

    def _passing_of(self, client: int, name: str) -> HostedSubscription | None:
        """Return the passing subscription of this name that belongs to a client's user."""
        return self._passing.get(name, {}).get(self._access.owner(client))

    # Moving to another broker and back; see handover.MovingSubscriptions.

    def save(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        """Put a subscription on disk, then call `done`."""
        self._host.save(subscription, done)

    def after_save(self, action: Callable[[], None]) -> None:
        """Run `action` once everything saved so far is on disk."""
        self._host.after_save(action)

    def fence(self, subscription: HostedSubscription, broker: str) -> None:
        """End the subscription's connection here, if it has one: the subscriber is at another broker now."""
        if subscription.client is not None:
            self._tell_moved(subscription.client, subscription, broker)
            self._by_client[subscription.client].discard(subscription.id)
            self._host.disconnect(subscription)

    def _tell_moved(self, client: int, subscription: HostedSubscription, broker: str) -> None:
        """Tell a connection that the subscriber has come to another broker since."""
        where = f"at the broker {broker!r}" if broker else "elsewhere, and has ended there"
        reason = f"{subscription.name!r} has connected {where}, which ends this connection's part"
        self._refuse(client, subscription.name, "taken", reason)

    def _of(self, client: int, name: str) -> HostedSubscription | None:
        if name in self._passing:
            passing = self._passing_of(client, name)
            if passing is not None and passing.client == client:
                return passing
        durable = self._by_name.get(name)
        return durable if durable is not None and durable.client == client else None

    def _refuse(self, client: int, name: str, code: str, reason: str, what: str = "subscribe") -> None:
        self._out.add(SendClient(client, Refused(what, name, code, reason)))


def _is_from_another_broker(frame: Subscribe, known: HostedSubscription) -> bool:
    """Return whether the subscriber has been, or may have been, at another broker since it was here.

    Its token is then from before it started here, or it presents a selector that this broker does not know.
    """
    if frame.token is None:
        return False
    is_older = any(tick < known.starts.get(pubend, TICK_MAX) for pubend, tick in frame.token.items())
    return is_older or is_change(frame, known)
