"""What a round of the archive is to read: ranges of ticks of pubends, and how they are divided among tasks.

A broker answers where each of its pubends stands and how many bytes it holds; events are assumed to lie
evenly in time. That is only an estimate: it decides how much one round does and how the work is divided,
never what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidemark.spark.broker_answers import HostedPubend
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.answers import TopicStatus


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Fetch `(base, upto]` of a pubend from its broker."""

    pubend: str
    base: int
    upto: int
    #: about how much there is to read
    bytes: int = 0
    #: URL
    broker: str = ""


@dataclass(frozen=True, slots=True)
class RoundPart:
    """The part of a round that one task does: what to fetch, and all that is needed to write it.

    Spark carries it to wherever the task runs.
    """

    #: of the archive
    path: Folder
    batch: int
    number: int
    tasks: tuple[FetchTask, ...]
    #: topics as a broker describes them
    topics: tuple[TopicStatus, ...]
    #: root -> the columns of its table, as an Arrow schema in bytes
    layouts: Mapping[str, bytes]
    #: root -> pubend -> the tick up to which its table has the pubend already, from a round that did not end
    reached: Mapping[str, Mapping[str, int]]
    #: stop after about so many bytes of events; None for no limit
    bytes_max: int | None = None


def backlog(pubends: Sequence[HostedPubend], covered: CheckpointToken) -> list[FetchTask]:
    """What the brokers have and the archive does not have; pubends without new events are left out."""
    tasks: list[FetchTask] = []
    for each in pubends:
        base = max(covered.get(each.pubend, TICK_MIN), _or_min(each.lost))
        if _or_min(each.last_event) > base and each.position > base:
            tasks.append(FetchTask(each.pubend, base, each.position, each.bytes, each.broker))
    return sorted(tasks, key=lambda task: task.pubend)


def lost_before(pubends: Sequence[HostedPubend], covered: CheckpointToken) -> list[FetchTask]:
    """What brokers have let go, or never had, before it was archived; silence is no loss."""
    tasks: list[FetchTask] = []
    for each in pubends:
        base, lost = covered.get(each.pubend, TICK_MIN), _or_min(each.lost)
        if lost > base and _or_min(each.last_event) > base:
            tasks.append(FetchTask(each.pubend, base, lost))
    return tasks


def divided(task: FetchTask, held_from: int, round_bytes: int, part_bytes: int) -> list[FetchTask]:
    """The first `round_bytes` or so of a task, in tasks of about `part_bytes` each.

    The broker's log starts beyond `held_from`, and `task.bytes` is all that it holds.
    """
    base = max(task.base, held_from)
    span = task.upto - base
    left = max(1, task.bytes * span // max(1, task.upto - held_from))
    upto = task.upto if left <= round_bytes else base + max(1, span * round_bytes // left)
    taken = min(left, round_bytes)
    count = max(1, min(-(-taken // part_bytes), upto - base))
    marks = [base + (upto - base) * at // count for at in range(count + 1)]
    marks[0] = task.base
    return [replace(task, base=low, upto=high, bytes=taken // count) for low, high in pairwise(marks)]


def _or_min(tick: int | None) -> int:
    return TICK_MIN if tick is None else tick
