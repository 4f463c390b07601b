"""ProcessAdmin: what a broker process answers administrators about its connections, links and topology.

Questions about the broker's roles are answered by `broker.admin`. Answers are JSON of the dataclasses in
`wire.answers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING

from tidemark.errors import (
    ConfigError,
    RuleMisfitError,
    StaleAccessError,
    StaleTopologyError,
    StorageError,
    TidemarkError,
)
from tidemark.node.config.loading import show
from tidemark.node.config.pubends import has_archive, pubend_of_priority
from tidemark.node.connection import Connection
from tidemark.node.frame_tasks import FrameTasks, shortened
from tidemark.node.local_link import LocalLink
from tidemark.node.monitoring.metrics import gauges
from tidemark.node.topology.text import to_text
from tidemark.wire import answers
from tidemark.wire.answers import (
    AccessText,
    Assignment,
    BrokerStatus,
    ConnectionStatus,
    EngineStatus,
    LinkStatus,
    OverlayText,
    Route,
    Setting,
    SnapshotEnded,
    SnapshotPiece,
    SnapshotStatus,
)
from tidemark.wire.frames import Answer, Ask, Refused
from tidemark.wire.json_objects import dumps, read_arguments
from tidemark.wire.questions import TooLongError, page_of

if TYPE_CHECKING:
    from tidemark.node.node import Node


#: No file of a broker is larger.
FILE_BYTES_MAX = 2**48
#: Digits of the number of a connection.
CURSOR_DIGITS_MAX = 19


class ProcessAdmin:
    """Answers the questions about one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks = FrameTasks(node.runtime.broker.counters)
        #: questions whose answers take a while
        self._slow = {
            answers.PROPOSE.what: self._propose,
            answers.PROPOSE_ACCESS.what: self._propose_access,
            answers.SNAPSHOT.what: self._snapshot,
            answers.SNAPSHOT_READ.what: self._snapshot,
            answers.SNAPSHOT_END.what: self._snapshot,
        }
        #: questions with arguments that are answered at once
        self._quick = {
            answers.CONNECTIONS.what: self._connections,
            answers.REPORT_ENGINE.what: self._note_engine,
        }

    @property
    def known(self) -> frozenset[str]:
        """The questions that are answered here."""
        return frozenset((*self._slow, *self._quick, *QUESTIONS))

    def answer(self, ask: Ask, client: int, reply: Callable[[Answer | Refused], None]) -> bool:
        """Answer a client with `reply`, now or later; return False if the question is for the broker's roles.

        Whoever may not see all events is not told where the archive is: what reads it goes by no rules.
        """
        who = self._node.runtime.broker.access.owner(client)
        reply = self._node.security.audit.answering(who, ask, reply)
        slow = self._slow.get(ask.what)
        if slow is not None:
            self._tasks.begin(slow(ask, reply), lambda reason: reply(_refused(ask, "frame", reason)))
            return True
        redirects = self._node.server.redirects
        if redirects is not None and (refusal := redirects.answer(ask)) is not None:
            reply(refusal)
            return True
        quick = self._quick.get(ask.what)
        if quick is not None:
            reply(quick(ask))
            return True
        if ask.what == answers.ARCHIVE.what and not self._node.runtime.broker.access.sees_all(client):
            reply(Answer(ask.ticket, dumps(())))
            return True
        question = QUESTIONS.get(ask.what)
        if question is not None:
            reply(Answer(ask.ticket, dumps(question(self._node))))
        return question is not None

    def _connections(self, ask: Ask) -> Answer | Refused:
        """Return the connections, the oldest first, or a page of them."""
        try:
            given = read_arguments(ask.arguments)
            after = str(given.get("after", ""))
            first = int(after) + 1 if after.isdecimal() and len(after) < CURSOR_DIGITS_MAX else 0
            total = len(self._node.server.connections)
            return Answer(ask.ticket, page_of(_connections(self._node, first), total, given))
        except TooLongError as error:
            return _refused(ask, "limit", str(error))
        except TidemarkError as error:
            return _refused(ask, "frame", str(error))

    def _note_engine(self, ask: Ask) -> Answer | Refused:
        """Keep what the process that writes the archive says about itself."""
        try:
            return Answer(ask.ticket, dumps(self._node.engine_reports.note(read_arguments(ask.arguments))))
        except TidemarkError as error:
            return _refused(ask, "frame", str(error))

    async def _propose(self, ask: Ask, reply: Callable[[Answer | Refused], None]) -> None:
        """Go by the topology `text` in place of that of version `base`; with `force` whatever that loses."""
        try:
            given = read_arguments(ask.arguments)
            await self._node.membership.propose(
                str(given["text"]), int(given["base"]), is_forced=bool(given.get("force"))
            )
        except StaleTopologyError as error:
            reply(_refused(ask, "version", str(error)))
        except ConfigError as error:
            reply(_refused(ask, "frame", str(error)))
        except (TidemarkError, ValueError, TypeError, KeyError) as error:
            reply(_refused(ask, "frame", f"cannot be taken: {error}"))
        else:
            reply(Answer(ask.ticket, dumps(_overlay(self._node))))

    async def _propose_access(self, ask: Ask, reply: Callable[[Answer | Refused], None]) -> None:
        """Go by the access document `text` in place of that of version `base`.

        With `force` that is done although rules in it fit no event of topics that exist.
        """
        access = self._node.access
        if access is None:
            reason = "this broker is open and has no access document: set security.mode to accounts"
            reply(_refused(ask, "unknown", reason))
            return
        try:
            given = read_arguments(ask.arguments)
            is_forced = bool(given.get("force"))
            await access.propose(str(given["text"]), int(given["base"]), is_forced=is_forced)
        except StaleAccessError as error:
            reply(_refused(ask, "version", str(error)))
        except RuleMisfitError as error:
            reply(_refused(ask, "selector", str(error)))
        except (TidemarkError, ValueError, TypeError, KeyError) as error:
            reply(_refused(ask, "frame", f"cannot be taken: {error}"))
        else:
            reply(Answer(ask.ticket, dumps(_access(self._node))))

    async def _snapshot(self, ask: Ask, reply: Callable[[Answer | Refused], None]) -> None:
        """Take a snapshot, read of it, or end it."""
        node, snapshots = self._node, self._node.snapshots
        answer: SnapshotStatus | SnapshotPiece | SnapshotEnded
        try:
            given = read_arguments(ask.arguments)
            if ask.what == answers.SNAPSHOT.what:
                answer = await snapshots.take(node.config.broker.name, node.server.incarnation)
            elif ask.what == answers.SNAPSHOT_READ.what:
                answer = await snapshots.read(
                    str(given["snapshot"]),
                    str(given["file"]),
                    _natural(given["offset"]),
                    _natural(given["bytes"]),
                )
            else:
                await snapshots.end(str(given["snapshot"]))
                answer = SnapshotEnded(str(given["snapshot"]))
        except StorageError as error:
            reply(_refused(ask, "snapshot", str(error)))
        except (TidemarkError, ValueError, TypeError, KeyError) as error:
            reply(_refused(ask, "frame", f"cannot be taken: {error!r}"))
        else:
            reply(Answer(ask.ticket, dumps(answer)))


def _refused(ask: Ask, code: str, reason: str) -> Refused:
    return Refused("ask", str(ask.ticket), code, shortened(reason))


def _access(node: Node) -> AccessText:
    document = node.access.document if node.access is not None else None
    if document is None:
        return AccessText(node.config.broker.name, "open", 0, "", "")
    return AccessText(node.config.broker.name, "accounts", document.version, document.digest, document.text)


def _engines(node: Node) -> tuple[EngineStatus, ...]:
    current = node.engine_reports.current
    return () if current is None else (current,)


def _natural(found: object) -> int:
    """Return a number of bytes in a file; ValueError if it is none."""
    if isinstance(found, int) and 0 <= found <= FILE_BYTES_MAX:
        return found
    raise ValueError(f"{found!r} is no number of bytes")


def _status(node: Node) -> BrokerStatus:
    # The numbers of alarms and of starts are there already, as the alarms themselves and the incarnation.
    numbers = {
        name: value for name, (_, value) in gauges(node).items() if name not in ("alarms", "incarnation")
    }
    return BrokerStatus(
        broker=node.config.broker.name,
        version=version("tidemark"),
        incarnation=node.server.incarnation,
        state=node.state,
        draining=node.is_draining,
        overlay=node.topology.version,
        started=node.started,
        uptime_seconds=round(time() - node.started, 3),
        listen=str(node.address),
        http=str(node.http_address) if node.http_address else None,
        data_dir=node.config.storage.data_dir,
        durability=node.config.storage.durability,
        links={peer: peer in node.runtime.peers for peer in node.server.neighbours},
        pubends=tuple(node.server.pubends),
        alarms=tuple(node.alarms),
        **numbers,
    )


def _archive(node: Node) -> list[str]:
    """Where the archive is that has what this broker lets go; nothing without an archive."""
    config = node.config
    path = config.archive_path()
    return [path if "://" in path else os.path.abspath(path)] if has_archive(config) else []


def _overlay(node: Node) -> OverlayText:
    topology = node.topology
    return OverlayText(node.config.broker.name, topology.version, topology.digest, to_text(topology))


def _routes(node: Node) -> list[Route]:
    """From which neighbour each pubend's stream comes, and which neighbours have it from this broker."""
    streams = {name: node.runtime.broker.stream(name) for name in sorted(node.topology.layout().pubends)}
    return [
        Route(name, stream.upstream, tuple(sorted(stream.followers)))
        for name, stream in streams.items()
        if stream is not None
    ]


def _links(node: Node) -> list[LinkStatus]:
    """Every link of the topology, up or not."""
    server = node.server
    local = {link.peer: link for link in server.local}
    up: dict[str, Connection | LocalLink] = {**{each.peer or "": each for each in server.links}, **local}
    now = server.time()
    return [
        LinkStatus(
            peer=peer,
            is_up=peer in node.runtime.peers,
            is_local=peer in local,
            seconds=round(now - up[peer].began, 3) if peer in up else None,
            bytes=up[peer].said_bytes if peer in up else 0,
            events=up[peer].said_events if peer in up else 0,
            queued_bytes=up[peer].queued_bytes if peer in up else 0,
            condition=node.runtime.broker.link_condition(peer),
            sent=server.link_traffic.of(peer),
            version=up[peer].link_version if peer in up else None,
        )
        for peer in server.neighbours
    ]


def _connections(node: Node, first: int) -> Iterator[tuple[str, ConnectionStatus]]:
    """Yield the connections by their numbers, from `first` on."""
    now = node.server.time()
    numbers = sorted(each.number for each in node.server.connections if each.number >= first)
    by_number = {each.number: each for each in node.server.connections if each.number >= first}
    for number in numbers:
        each = by_number[number]
        yield (
            str(number),
            ConnectionStatus(
                client=each.client,
                peer=each.peer,
                name=each.name or each.peer,
                address=each.address,
                seconds=round(now - each.began, 3),
                silent_seconds=round(now - each.liveness.heard, 3),
                queued_bytes=each.queued_bytes,
                is_paused=each.is_held,
            ),
        )


def _metrics(node: Node) -> dict[str, float]:
    return {
        **node.runtime.broker.counters,
        "turn_longest_seconds": node.server.turns.longest,
        **{name: value for name, (_, value) in gauges(node).items()},
        **node.metrics.watcher.delivered_within(),
    }


def _config(node: Node) -> list[Setting]:
    return [Setting(key, value, source) for key, value, source in show(node.config)]


def _assignment(node: Node) -> Assignment:
    rules = pubend_of_priority(node.config, node.server.pubends)
    return Assignment(node.config.broker.assign, rules)


QUESTIONS: Mapping[str, Callable[[Node], object]] = {
    answers.ACCESS.what: _access,
    answers.ASSIGNMENT.what: _assignment,
    answers.ENGINE.what: _engines,
    answers.CONFIG.what: _config,
    answers.LINKS.what: _links,
    answers.METRICS.what: _metrics,
    answers.OVERLAY.what: _overlay,
    answers.ROUTES.what: _routes,
    answers.STATUS.what: _status,
    answers.ARCHIVE.what: _archive,
}
