"""Asking for an erasure: what is meant is noted, and the process that writes the archive does it.

If no process writes the archive, it is done here. Either way everything that brokers have now is archived
first, so that the erasure covers it. Then brokers are asked to let go what they hold up to there: whoever
still lacks it gets it from the archive, where the erased events are silence.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from typing import Any

from tidemark.errors import ConfigError
from tidemark.spark.archive.archive import Archive, let_go
from tidemark.spark.archive.state import load_topics
from tidemark.spark.archive.status import writing_process
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.engine.tasks import SessionLender
from tidemark.spark.locations import Place, check_archive
from tidemark.spark.upkeep.erasing import erase_pending
from tidemark.spark.upkeep.erasure import ErasedEvents, Erasure, load_erasures, new_erasure, save_erasure

#: How often it is looked whether the process that writes the archive has done it.
LOOK_SECONDS = 0.5
#: How often brokers are asked to let go before what they hold is reported.
LOOKS_MAX = 20


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What became of an erasure."""

    erasure: Erasure
    #: pubend -> the tick up to which its broker still tells events, some of which may be meant
    held: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {**self.erasure.to_json(), "held": self.held}


def erase(
    path: Place,
    broker: str | Sequence[str],
    topic: str,
    where: str,
    *,
    sleep: Callable[[float], bool],
    sessions: SessionLender | None = None,
    asked_by: str | None = None,
) -> ErasureReport:
    """Erase the events of a topic, or of all topics of a pattern, that match and are published by now.

    The record says that `asked_by` asked for it, by default whoever runs this process.
    Returns when it is done, or when `sleep` returns False: whoever writes the archive then goes on with it.
    Raises SelectorError, ConfigError or NotConnectedError before anything is noted.
    """
    check_archive(path)
    if not where:
        raise ConfigError("say which events: TRUE erases all of the topic", key="where")
    brokers = ArchiveBrokers(urls_of(broker))
    try:
        hosted = brokers.pubends()
        if brokers.away:
            raise ConfigError(f"all brokers are needed: {'; '.join(brokers.away.values())}", key="broker")
        topics = load_topics(path).merged(brokers.topics())
    finally:
        brokers.close()
    upto = {each.pubend: each.last_event for each in hosted if each.last_event is not None}
    erasure = new_erasure(topic, where, upto, time.time(), asked_by or who_asks())
    ErasedEvents(erasure, topics)
    save_erasure(path, erasure)
    if writing_process(path) is None:
        with Archive(broker, path, merging=sessions) as archive:
            while archive.round() is not None:
                pass
            erase_pending(archive, sessions)
    found = _now(path, erasure)
    while found.stage == "asked" and sleep(LOOK_SECONDS):
        found = _now(path, erasure)
    if found.stage == "asked":
        return ErasureReport(found, upto)
    return ErasureReport(found, _let_go(broker, found, sleep))


def who_asks() -> str:
    """The user as whom this process logs in to brokers, or else its user of the system and the host."""
    user = os.environ.get("TIDEMARK_USER", "")
    if user:
        return user
    name = str(os.getuid())
    with suppress(OSError, KeyError):  # a container may run as a user that has no name
        name = getuser()
    return f"{name}@{socket.gethostname()}"


def _let_go(broker: str | Sequence[str], erasure: Erasure, sleep: Callable[[float], bool]) -> dict[str, int]:
    """Ask brokers to let go what they hold; returns what they have not let go when `sleep` returns False.

    A subscriber that is connected and has not taken an event yet is waited for.
    """
    upto = erasure.upto
    brokers = ArchiveBrokers(urls_of(broker))
    try:
        for look in range(LOOKS_MAX):
            let_go(brokers, brokers.pubends(), upto, again=not look, erasure=erasure.id)
            held = {
                each.pubend: upto[each.pubend]
                for each in brokers.pubends()
                if each.pubend in upto and (each.lost is None or each.lost < upto[each.pubend])
            }
            if not held or not sleep(LOOK_SECONDS):
                break
        return held
    finally:
        brokers.close()


def _now(path: Place, erasure: Erasure) -> Erasure:
    return next(each for each in load_erasures(path) if each.id == erasure.id)
