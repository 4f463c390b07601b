"""Admin: what an administrator asks a broker, over the protocol that everyone speaks.

Each question has a name and a JSON object of arguments; the answer is JSON too. What a broker process knows
beyond its broker - connections, disks - the process answers itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tidemark.broker.effects import Outbox, SendClient
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.sessions import Sessions
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.publishing.release import Hosts
from tidemark.errors import TidemarkError
from tidemark.message.registry import Registry
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Answer, Ask, Refused

Arguments = Mapping[str, Any]


class AdminError(TidemarkError):
    """A question cannot be answered."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Admin:
    """Answers questions about one broker."""

    def __init__(
        self,
        host: Host,
        reception: Sessions,
        registry: Registry,
        pubends: Mapping[str, Pubend],
        hosts: Mapping[str, Hosts],
        out: Outbox,
    ) -> None:
        self._host = host
        self._sessions = reception
        self._registry = registry
        self._pubends = pubends
        self._hosts = hosts
        self._out = out
        self._questions: dict[str, Callable[[Arguments], Any]] = {
            "topics": lambda _: self.topics(),
            "pubends": lambda _: self.pubends(),
            "streams": lambda _: self.streams(),
            "subscriptions": lambda _: self.subscriptions(),
            "subscription": lambda given: self.subscription(self._named(given)),
            "remove": self._remove,
            "seek": self._seek,
            "archived": self._archived,
            "hosts": lambda _: self.hosts(),
            "forget_host": self._forget_host,
        }

    def asked(self, client: int, frame: Ask) -> None:
        """Answer a question, or say why not."""
        question = self._questions.get(frame.what)
        try:
            if question is None:
                known = ", ".join(sorted(self._questions))
                raise AdminError("unknown", f"there is no question {frame.what!r}: ask {known}")
            given = json.loads(frame.arguments)
            if not isinstance(given, dict):
                raise AdminError("frame", "the arguments have to be a JSON object")
            payload = json.dumps(question(given))
        except json.JSONDecodeError as error:
            self._refuse(client, frame, "frame", f"the arguments are not JSON: {error}")
        except AdminError as error:
            self._refuse(client, frame, error.code, str(error))
        except TidemarkError as error:
            self._refuse(client, frame, "frame", str(error))
        else:
            # What was changed has to be on disk before it is said to be done.
            answer = SendClient(client, Answer(frame.ticket, payload))
            self._host.after_save(lambda: self._out.add(answer))

    def topics(self) -> list[dict[str, Any]]:
        """Every topic with all versions of its schema."""
        return [
            {"topic": name, "open": found.is_open, "schemas": [schema.text for schema in found.versions]}
            for name, found in sorted(self._registry.topics.items())
        ]

    def pubends(self) -> list[dict[str, Any]]:
        """The pubends that are hosted here."""
        return [pubend.describe() for _, pubend in sorted(self._pubends.items())]

    def streams(self) -> list[dict[str, Any]]:
        """Every pubend's stream as it is here."""
        return [
            {
                "pubend": name,
                "position": constream.stream.position,
                "delivered": constream.delivered,
                "synced": constream.synced,
                "lost": constream.stream.window.knowledge.lost,
                "window_bytes": constream.stream.window.bytes,
                "upstream": constream.stream.upstream,
                "followers": sorted(constream.stream.followers),
                "catching_up": len(constream.catchups),
            }
            for name, constream in sorted(self._host.constreams.items())
        ]

    def hosts(self) -> list[dict[str, Any]]:
        """The brokers that may have subscribers of the pubends here, and how far they are."""
        return [
            {"pubend": pubend, **host}
            for pubend, hosts in sorted(self._hosts.items())
            for host in hosts.describe()
        ]

    def _forget_host(self, given: Arguments) -> dict[str, Any]:
        """Strike off a broker that is gone for good: what only its subscribers hold may be let go."""
        name = given.get("host")
        removed = [pubend for pubend, hosts in sorted(self._hosts.items()) if hosts.remove(str(name))]
        if not removed:
            known = sorted({host for hosts in self._hosts.values() for host in hosts.known})
            raise AdminError("unknown", f"no pubend here waits for {name!r}: those it waits for are {known}")
        return {"removed": name, "pubends": removed}

    def subscriptions(self) -> list[dict[str, Any]]:
        """Every subscription that is hosted here."""
        return [self.subscription(each) for each in self._host.subscriptions.values()]

    def subscription(self, subscription: HostedSubscription) -> dict[str, Any]:
        """One subscription; lag is in microseconds behind what has been delivered here."""
        pubends = {}
        for pubend, constream in sorted(self._host.constreams.items()):
            acknowledged = subscription.released.get(pubend)
            delivered = constream.delivered
            lag = None
            if acknowledged is not None and delivered is not None:
                # Nothing has happened since the last event: who has got that far has got everything.
                lag = max(0, min(delivered, max(constream.last_event, acknowledged)) - acknowledged)
            pubends[pubend] = {
                "start": subscription.starts.get(pubend),
                "acknowledged": acknowledged,
                "told": subscription.told.get(pubend),
                "lag_us": lag,
                "catching_up": subscription.id in constream.catchups,
                "recall": self._host.catchup_streams.recalls.state(pubend, subscription.id),
            }
        return {
            "name": subscription.name,
            "durable": subscription.durable,
            "connected": subscription.client is not None,
            "pattern": subscription.current.wanted.pattern,
            "selector": subscription.current.wanted.selector,
            "changing": len(subscription.periods) > 1,
            "credit": subscription.credit,
            "checkpoint": CheckpointToken(subscription.released).text(),
            "pubends": pubends,
        }

    def _named(self, given: Arguments) -> HostedSubscription:
        name = given.get("name")
        found = self._sessions.find(name) if isinstance(name, str) else None
        if found is None:
            raise AdminError("unknown", f"there is no subscription {name!r} at this broker")
        return found

    def _remove(self, given: Arguments) -> dict[str, Any]:
        subscription = self._named(given)
        if subscription.client is not None and not given.get("force"):
            raise AdminError("taken", f"{subscription.name!r} is connected: stop it first, or force it")
        self._sessions.expel(subscription)
        return {"removed": subscription.name}

    def _seek(self, given: Arguments) -> dict[str, Any]:
        """Move a subscription that is away forward: what lies before is acknowledged unseen."""
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
        return self.subscription(subscription)

    def _archived(self, given: Arguments) -> list[dict[str, Any]]:
        """The archive says how far it has got, as a checkpoint token."""
        token = CheckpointToken.parse(str(given.get("token", "")))
        for name, tick in token.items():
            pubend = self._pubends.get(name)
            if pubend is None:
                raise AdminError("pubend", f"the pubend {name!r} is not hosted here")
            if pubend.archived is None:
                raise AdminError("unknown", f"{name!r} is not set up for an archive: set retention.archive")
            pubend.archived = max(pubend.archived, min(tick, pubend.position))
        return self.pubends()

    def _refuse(self, client: int, frame: Ask, code: str, reason: str) -> None:
        self._out.add(SendClient(client, Refused("ask", str(frame.ticket), code, reason)))
