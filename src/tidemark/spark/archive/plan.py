"""What a round of the archive is to read: pubend x tick range, and who reads it.

The broker says where each pubend stands and how many bytes it holds; events are taken to lie evenly in time.
That is only an estimate: it decides how much one round does and how it is divided, never what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tidemark.ticks import TICK_MIN, CheckpointToken


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Read `(base, upto]` of a pubend."""

    pubend: str
    base: int
    upto: int
    #: about so much is there to read
    bytes: int = 0
    #: where
    broker: str = ""


def backlog(pubends: Sequence[Mapping[str, Any]], covered: CheckpointToken) -> list[FetchTask]:
    """What the brokers have and the archive has not; nothing of pubends without new events."""
    tasks: list[FetchTask] = []
    for each in pubends:
        base = max(covered.get(each["pubend"], TICK_MIN), _or_min(each["lost"]))
        if _or_min(each["last_event"]) > base and each["position"] > base:
            tasks.append(
                FetchTask(each["pubend"], base, each["position"], each["bytes"], each.get("broker", ""))
            )
    return sorted(tasks, key=lambda task: task.pubend)


def lost_before(pubends: Sequence[Mapping[str, Any]], covered: CheckpointToken) -> list[FetchTask]:
    """What brokers have let go, or never had, before it was archived; silence is no loss."""
    tasks: list[FetchTask] = []
    for each in pubends:
        base, lost = covered.get(each["pubend"], TICK_MIN), _or_min(each["lost"])
        if lost > base and _or_min(each["last_event"]) > base:
            tasks.append(FetchTask(each["pubend"], base, lost))
    return tasks


def divided(task: FetchTask, held_from: int, round_bytes: int, part_bytes: int) -> list[FetchTask]:
    """The first about `round_bytes` of a task, in parts of about `part_bytes`.

    The broker's log starts beyond `held_from`, and `task.bytes` is all it holds.
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
