"""Connections of the pipeline: one broker asked until it answers, and several brokers read as one.

The client reconnects to a lost broker by itself, but a question that was under way when the broker was lost
fails. `RetryingClient` asks such a question again, with a back-off, until `retry_seconds` have passed without
an answer, and then raises one clear error. It is only for questions that may be asked twice.

One URL may name addresses that stand in for each other, `tidemark://a:7676,b:7676`. Whole URLs in a row,
`tidemark://a:7676,tidemark://b:7676`, are brokers with pubends of their own. `RetryingClients` needs all of
them and fetches a pubend from its host; `ArchiveBrokers` goes on with those that answer. `retrying_client` is
the entry for readers.
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tidemark import sync
from tidemark.client.connecting.addresses import SCHEME, TLS_SCHEME, parse_url
from tidemark.client.connecting.backoff import Backoff
from tidemark.errors import ConfigError, NotConnectedError, RefusedError, TidemarkError, TimedOutError
from tidemark.spark.broker_answers import HostedPubend, merged_pubends, merged_topics
from tidemark.wire.answers import (
    ARCHIVE,
    PUBENDS,
    REACH,
    ROUTES,
    TOPICS,
    EventsReached,
    PubendStatus,
    TopicStatus,
)
from tidemark.wire.frames import Fetched
from tidemark.wire.questions import Answered, Question

T = TypeVar("T")

#: How long the first connection of a query may take: a broker that was never there is more likely a mistake
#: in the URL than a fault.
CONNECT_SECONDS_MAX = 10.0
_CLOSE_SECONDS = 1.0
BROKERS_MAX = 1_000
#: How often the archive looks for a broker that is away, how long a first connection may take, and how long
#: one to a broker that was away: the other brokers wait meanwhile.
AWAY_SECONDS = 5.0
CONNECT_SECONDS = 10.0
CONNECT_AGAIN_SECONDS = 1.0
ANSWER_SECONDS = 60.0

_log = logging.getLogger("tidemark.archive")


class Closing(ABC):
    """What `with` closes at the end of its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what this holds."""


class RetryingClient(Closing):
    """Asks one broker, again and again, until it answers."""

    def __init__(
        self, url: str, retry_seconds: float, *, publisher: str | None = None, pubend: str | None = None
    ) -> None:
        self._url = url
        self._retry_seconds = retry_seconds
        self._publisher = publisher
        self._pubend = pubend
        self._client: sync.Client | None = None

    def close(self) -> None:
        """Disconnect; the next question connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close(_CLOSE_SECONDS)

    def run(self, question: Callable[[sync.Client], T]) -> T:
        """What the question returns. Raises NotConnectedError if there was no answer for `retry_seconds`.

        A broker whose disk is full is waited for like one that is away; other refusals are raised at once.
        """
        deadline = time.monotonic() + self._retry_seconds
        backoff = Backoff()
        while True:
            try:
                return question(self._connected(deadline))
            except (NotConnectedError, TimedOutError, RefusedError) as error:
                if isinstance(error, RefusedError) and error.code != "full":
                    raise
                if time.monotonic() >= deadline:
                    raise NotConnectedError(
                        f"{self._url}: no answer for {self._retry_seconds:g} s ({error}). Start the broker, "
                        "or correct the option `broker`; the query then goes on where it was"
                    ) from None
                self._forget_after(error)
            time.sleep(min(backoff.delay(), max(0.0, deadline - time.monotonic())))

    def pubends(self) -> Sequence[PubendStatus]:
        """The pubends that the broker hosts."""
        return self.run(lambda client: client.ask(PUBENDS))

    def topics(self) -> Sequence[TopicStatus]:
        """The topics that the broker knows."""
        return self.run(lambda client: client.ask(TOPICS))

    def archives(self) -> Sequence[str]:
        """The paths of the archives that the broker knows of."""
        return self.run(lambda client: client.ask(ARCHIVE))

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        """See Client.fetch."""
        return self.run(
            lambda client: client._fetch(pubend, base, upto, pattern, selector, bytes_max=bytes_max)
        )

    def reach(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, events: int
    ) -> EventsReached | None:
        """Where the n-th event of `(base, upto]` lies; None if the broker is too old to say."""
        asked: dict[str, Any] = {
            "pubend": pubend,
            "base": base,
            "upto": upto,
            "pattern": pattern,
            "selector": selector,
        }
        try:
            return self.run(lambda client: client.ask(REACH, events=events, **asked))
        except RefusedError as error:
            if error.code != "unknown":
                raise
            return None

    def _connected(self, deadline: float) -> sync.Client:
        if self._client is None:
            left = max(0.1, min(CONNECT_SECONDS_MAX, deadline - time.monotonic()))
            self._client = sync.connect(
                self._url,
                publisher=self._publisher,
                pubend=self._pubend,
                connect_timeout=left,
                wait_for_broker=True,
            )
        return self._client

    def _forget_after(self, error: Exception) -> None:
        """Drop the connection where asking again needs a new one.

        A publishing client has used up sequence numbers whose fate is open; only a new client uses them
        again.
        """
        if self._publisher is not None or isinstance(error, TimedOutError):
            self.close()


def urls_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """The URLs of all brokers, each once. Raises ConfigError if there is none or one is malformed."""
    texts = [text] if isinstance(text, str) else text
    begins = "|".join(map(re.escape, (SCHEME, TLS_SCHEME)))
    urls = [url for each in texts for url in re.split(rf"\s*,\s*(?={begins})", each.strip())]
    for url in urls:
        parse_url(url)
    if not 1 <= len(urls) <= BROKERS_MAX:
        raise ConfigError(f"name 1 to {BROKERS_MAX} brokers, not {len(urls)}", key="broker")
    return tuple(dict.fromkeys(urls))


class BrokerReader(Protocol):
    """A connection to one broker or several, as readers need it."""

    def pubends(self) -> Sequence[PubendStatus]:
        """All pubends."""

    def topics(self) -> Sequence[TopicStatus]:
        """All topics."""

    def archives(self) -> Sequence[str]:
        """The paths of the archives that the brokers know of."""

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        """See Client.fetch."""

    def reach(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, events: int
    ) -> EventsReached | None:
        """Where the n-th event of `(base, upto]` lies; None if the broker is too old to say."""

    def close(self) -> None:
        """Disconnect."""

    def __enter__(self) -> BrokerReader: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def retrying_client(broker: str, retry_seconds: float) -> BrokerReader:
    """A connection to one broker or several, which waits `retry_seconds` for a broker that is away."""
    urls = urls_of(broker)
    return RetryingClient(urls[0], retry_seconds) if len(urls) == 1 else RetryingClients(urls, retry_seconds)


#: Connections that a process keeps for its next task; see `kept_client`.
KEPT_MAX = 4
_kept: dict[tuple[str, float], BrokerReader] = {}


@contextmanager
def kept_client(broker: str, retry_seconds: float) -> Iterator[BrokerReader]:
    """A connection as of `retrying_client`, which stays open for the next task in this process.

    Spark uses a Python process for one task after the other, and ends it when it was idle for a minute; to
    connect takes longer than to read a small batch. A connection on which something failed is not kept.
    """
    key = broker, retry_seconds
    client = _kept.pop(key, None) or retrying_client(broker, retry_seconds)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if key in _kept or len(_kept) >= KEPT_MAX:
        client.close()
    else:
        _kept[key] = client


class RetryingClients(Closing):
    """Asks several brokers, all of which must answer; a pubend is fetched from its host."""

    def __init__(self, urls: Sequence[str], retry_seconds: float) -> None:
        self._brokers = {url: RetryingClient(url, retry_seconds) for url in urls}
        self._hosts: dict[str, str] = {}

    def close(self) -> None:
        """Disconnect from all brokers."""
        for each in self._brokers.values():
            each.close()

    def pubends(self) -> Sequence[HostedPubend]:
        """The pubends of all brokers, by name."""
        found = merged_pubends([(url, broker.pubends()) for url, broker in self._brokers.items()])
        self._hosts = {each.pubend: each.broker for each in found}
        return found

    def topics(self) -> Sequence[TopicStatus]:
        """The topics of all brokers, by name."""
        return merged_topics([broker.topics() for broker in self._brokers.values()])

    def archives(self) -> Sequence[str]:
        """The paths of the archives that the brokers know of."""
        return [path for broker in self._brokers.values() for path in broker.archives()]

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        """See Client.fetch. Raises ConfigError if none of the brokers hosts the pubend."""
        return self._host(pubend).fetch(pubend, base, upto, pattern, selector, bytes_max=bytes_max)

    def reach(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, events: int
    ) -> EventsReached | None:
        """See RetryingClient.reach. Raises ConfigError if none of the brokers hosts the pubend."""
        return self._host(pubend).reach(pubend, base, upto, pattern, selector, events)

    def _host(self, pubend: str) -> RetryingClient:
        if pubend not in self._hosts:
            self.pubends()
        if pubend not in self._hosts:
            raise ConfigError(
                f"none of {', '.join(self._brokers)} hosts the pubend {pubend!r}: name its broker, too",
                key="broker",
            )
        return self._brokers[self._hosts[pubend]]


class ArchiveBrokers:
    """The brokers of an archive; one that is away is skipped, and looked for from time to time."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience` is how many seconds a first connection may take."""
        self.urls = tuple(urls)
        self._patience = CONNECT_SECONDS if patience is None else patience
        self._clock = clock
        self._clients: dict[str, sync.Client] = {}
        #: url -> why it does not answer, and when it was last tried
        self._away: dict[str, tuple[str, float]] = {}
        #: the pubends of these brokers when `_warn_of_others` last compared them with those of the overlay
        self._hosted: set[str] | None = None

    @property
    def away(self) -> dict[str, str]:
        """url -> why it does not answer."""
        return {url: reason for url, (reason, _) in self._away.items()}

    def close(self) -> None:
        """Close all connections; the next question makes new ones."""
        for url in list(self._clients):
            self._forget(url)

    def pubends(self) -> list[HostedPubend]:
        """The pubends of all brokers that answer. Raises NotConnectedError if none does."""
        found = merged_pubends(self._answers(PUBENDS).items())
        self._warn_of_others({each.pubend for each in found})
        return found

    def topics(self) -> tuple[TopicStatus, ...]:
        """The topics of all brokers that answer. Raises NotConnectedError if none does."""
        return merged_topics(self._answers(TOPICS).values())

    def client(self, url: str) -> sync.Client:
        """The connection to the broker at `url`, which is made if there is none."""
        if url not in self._clients:
            patience = min(CONNECT_AGAIN_SECONDS, self._patience) if url in self._away else self._patience
            self._clients[url] = sync.connect(
                url, timeout=ANSWER_SECONDS, connect_timeout=patience, wait_for_broker=True
            )
            self._away.pop(url, None)
        return self._clients[url]

    def _answers(self, question: Question[Answered]) -> dict[str, Answered]:
        """url -> the answer of each broker that answers. Raises NotConnectedError if none does."""
        answers: dict[str, Answered] = {}
        for url in self.urls:
            if url in self._away and len(self.urls) > 1 and self._clock() < self._away[url][1] + AWAY_SECONDS:
                continue
            try:
                answers[url] = self.client(url).ask(question)
            except (NotConnectedError, TimedOutError) as error:
                self._forget(url)
                self._away[url] = str(error), self._clock()
        if not answers:
            raise NotConnectedError("; ".join(self.away.values()))
        return answers

    def _warn_of_others(self, hosted: set[str]) -> None:
        """Log the pubends of the overlay that none of these brokers hosts, when something has changed."""
        if self._away or hosted == self._hosted:
            return
        routes = self._answers(ROUTES).values()
        others = sorted({each.pubend for answer in routes for each in answer} - hosted)
        if others:
            _log.warning("not archived here: %s; name the brokers that host them, too", ", ".join(others))
        self._hosted = hosted

    def _forget(self, url: str) -> None:
        client = self._clients.pop(url, None)
        if client is not None:
            try:
                client.close(timeout=0)
            except TidemarkError:
                return
