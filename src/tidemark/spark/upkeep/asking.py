"""Asking for an erasure: what is meant is noted, and the process that writes the archive does it.

If no process writes the archive, it is done here. Either way everything that brokers have now is archived
first, so that the erasure covers it; what brokers still hold in their logs goes when they release it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.errors import ConfigError
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.state import load_topics
from tidemark.spark.archive.status import writing_process
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.engine.tasks import SessionLender
from tidemark.spark.locations import Place, check_archive
from tidemark.spark.upkeep.erasing import erase_pending
from tidemark.spark.upkeep.erasure import ErasedEvents, Erasure, load_erasures, new_erasure, save_erasure
from tidemark.ticks import TICK_MIN

#: How often it is looked whether the process that writes the archive has done it.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What became of an erasure."""

    erasure: Erasure
    #: pubend -> the tick up to which its broker still holds events in its log, some of which may be meant
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
) -> ErasureReport:
    """Erase the events of a topic, or of all topics of a pattern, that match and are published by now.

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
    erasure = new_erasure(topic, where, upto, time.time())
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
    held = {
        each.pubend: upto[each.pubend]
        for each in hosted
        if each.pubend in upto and upto[each.pubend] > (TICK_MIN if each.lost is None else each.lost)
    }
    return ErasureReport(found, held)


def _now(path: Place, erasure: Erasure) -> Erasure:
    return next(each for each in load_erasures(path) if each.id == erasure.id)
