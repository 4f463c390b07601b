"""Changes of a running overlay: planned as steps that lose nothing, and carried out one after the other.

`plan_change` compares the topology that an overlay goes by with the one it should have. `apply_step` tells
the brokers of one step, and waits until the brokers that it adds run and those that it drains are empty. A
change that was interrupted is planned again and goes on from where it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.admin.overlay_queries import (
    NOT_RUNNING,
    ask_what_keeps_broker,
    find_topology,
    propose_topology,
    urls_of,
)
from tidemark.errors import OverlayChangeError
from tidemark.wire.json_objects import JsonObject

if TYPE_CHECKING:
    from tidemark.node.topology.plan import Change, Step
    from tidemark.node.topology.topology import Topology

#: How often a broker is asked that has to start, or to be emptied.
ASK_AGAIN_SECONDS = 0.25
#: A report of progress names at most so many of the reasons why a broker cannot be taken away yet.
REASONS_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class TopologyPlan(JsonObject):
    """How an overlay differs from what it should be, and the steps that lead there."""

    #: of the topology that the overlay goes by now
    version: int
    changes: Sequence[Change]
    steps: Sequence[Step]
    #: the URL of a broker of the overlay; "" for that of the environment
    like: str = ""

    def json_items(self) -> dict[str, Any]:
        """The steps without their topologies."""
        changes = [
            {"kind": each.kind, "name": each.name, "what": each.what, "detail": each.detail}
            for each in self.changes
        ]
        return {
            "version": self.version,
            "changes": changes,
            "steps": [step_items(step) for step in self.steps],
        }


def step_items(step: Step) -> dict[str, Any]:
    """Return what the JSON of a step says: its name, version, and the brokers that it is about."""
    return {
        "step": step.what,
        "version": step.topology.version,
        "added": list(step.added),
        "drained": list(step.drained),
    }


def plan_change(after: Topology, url: str | None = None) -> TopologyPlan:
    """Plan how to bring a running overlay to the topology `after`; ConfigError if that cannot be done.

    The overlay is asked at `url`, or at the first broker of `after` that answers.
    """
    from tidemark.node.topology.plan import changes, steps

    before = find_topology([url] if url is not None else urls_of(after).values())
    return TopologyPlan(before.version, changes(before, after), steps(before, after), url or "")


class StepProgress:
    """Hears how the steps of a change go on; a program that wants to show it overrides these methods."""

    def taken(self, step: Step, not_running: Sequence[str]) -> None:
        """The brokers go by the topology of a step, but for those that are not running."""

    def to_start(self, names: Sequence[str]) -> None:
        """These brokers have to be started before the change goes on."""

    def still_draining(self, reason: str) -> None:
        """A broker is not empty yet, for this reason, which is another one than before."""


def apply_plan(
    plan: TopologyPlan, *, wait_seconds: float, is_forced: bool = False, progress: StepProgress | None = None
) -> None:
    """Carry out all steps of a plan: see `apply_step`; `wait_seconds` is for each step."""
    for step in plan.steps:
        apply_step(step, plan.like, wait_seconds=wait_seconds, is_forced=is_forced, progress=progress)


def apply_step(
    step: Step,
    like: str = "",
    *,
    wait_seconds: float,
    is_forced: bool = False,
    progress: StepProgress | None = None,
) -> None:
    """Carry out one step of a plan, and wait until the overlay is where the step leads.

    `like` is the URL of a broker of the overlay, which says whether brokers are reached over TLS.
    Raises OverlayChangeError if a broker refuses the step, or if a broker that has to start or to be drained
    has not done so after `wait_seconds`. With `is_forced`, drained brokers that do not run may stay so.
    """
    report = progress or StepProgress()
    refused = propose_topology(step.topology, like, is_forced=is_forced)
    problems = {name: problem for name, problem in refused.items() if problem != NOT_RUNNING}
    if problems or len(refused) == len(step.topology.brokers):
        name, problem = next(iter((problems or refused).items()))
        raise OverlayChangeError(f"{name} did not take it: {problem}", broker=name)
    report.taken(step, sorted(refused))
    deadline = time.monotonic() + wait_seconds
    to_start = [name for name in step.added if name in refused]
    report.to_start(to_start)
    urls = urls_of(step.topology, like)
    for name in to_start:
        _wait_for_start(name, urls[name], deadline)
    for name in step.drained:
        _wait_for_drain(name, urls[name], deadline, is_forced=is_forced, report=report)


def _wait_for_start(name: str, url: str, deadline: float) -> None:
    while ask_what_keeps_broker(url) is None:
        if time.monotonic() > deadline:
            reason = f"{name} does not run: start it, and apply the file again"
            raise OverlayChangeError(reason, broker=name)
        time.sleep(ASK_AGAIN_SECONDS)


def _wait_for_drain(name: str, url: str, deadline: float, *, is_forced: bool, report: StepProgress) -> None:
    reported = None
    while (reasons := ask_what_keeps_broker(url)) != []:
        if reasons is None:
            if is_forced:
                return
            text = f"{name}: it does not run: start it, or use --force if what only it has may be lost"
        else:
            text = f"{name}: {'; '.join(reasons[:REASONS_SHOWN_MAX])}"
        if time.monotonic() > deadline:
            raise OverlayChangeError(f"{text}. Apply the file again to go on", broker=name)
        if text != reported:
            report.still_draining(text)
        reported = text
        time.sleep(ASK_AGAIN_SECONDS)
