"""The fuzzer: drives a real broker process with hostile frames, beside clients that must not notice.

The broker hosts a pubend, at which a publisher and a durable subscriber work and write ledgers. Hostile
clients, and hostile neighbours that the topology names, say what they should not. Now and then the broker is
stopped and started again, which finds poisoned tables and logs. A run fails if the broker ends, does not
answer, or does not start again; if a well-behaved client was disconnected; if what one connection said took
more than TURN_SECONDS_MAX of the processor time of the broker's loop without a break; and if a ledger says
that an event was lost, repeated, out of order or wrong.

A seed decides what is said, apart from what the broker's own answers put into it (ticks, tickets, versions).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from unittest.mock import patch

from tidemark.broker.counters import COUNTED
from tidemark.lab.fuzz.connections import (
    HostileClient,
    HostileConnection,
    HostileNeighbour,
    HostileStranger,
    Said,
    ask,
    closed,
    pubend_of,
)
from tidemark.lab.fuzz.frame_maker import FrameMaker
from tidemark.lab.fuzz.secured import (
    CHANGES,
    GOOD,
    HOSTILE_HOST,
    LITTLE,
    NOBODY,
    NeighbourProof,
    TargetFiles,
    UserProof,
    judge_little,
    judge_neighbour_without_proof,
    judge_nobody,
    judge_stranger,
)
from tidemark.lab.fuzz.values import HostileValues
from tidemark.lab.processes.broker_start import free_port, set_arguments
from tidemark.lab.processes.process_harness import ManagedBroker, ProcessHarness
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS

#: The pubend of the broker, and the neighbours that the fuzzer plays. There are several of them because one
#: that was refused is left alone for a while.
PUBEND = "pa"
#: Windows are soon full, so that hostile frames get to the code for that. On a machine with much else to do a
#: well-behaved client may not run for a while: nobody is given up for that.
SETTINGS = ("--set", "limits.window=4KiB", "--set", "limits.silence=20m")
PATIENT = ("--timeout", "1200", "--ping", "120")
#: A broker that comes into the topology and leaves it while the others run.
GUEST = '\n[brokers.guest]\nlisten = "127.0.0.1:13"\npubends = ["pguest"]\nparent = "a"\n'
NEIGHBOURS = tuple(f"b{number}" for number in range(1, 13))
CLIENTS = 6
#: Names of the well-behaved clients.
PUBLISHER, SUBSCRIBER = "good-publisher", "good-subscriber"
EVENTS_A_SECOND = 100
#: So many steps of hostile connections between two looks at the broker, between two changes of the topology,
#: and between two restarts.
LOOK_STEPS = 200
CHANGE_STEPS = 1_100
RESTART_STEPS = 6_000
SETTLE_SECONDS = 600.0
#: Processor time of the broker's loop that one frame may take, with up to a millisecond of those before it.
TURN_SECONDS_MAX = 0.25
#: Lines of the broker's log that tell of an error that nobody has foreseen.
UNFORESEEN = ("was not foreseen", "never retrieved", "Fatal error", "Exception in callback")
#: Refusals by the core that were foreseen.
FORESEEN = re.compile(r"^(AccessError|WireError|TokenError|FrameError|NeighbourError)\(")


@dataclass(slots=True)
class FuzzReport:
    """What a run has done and found."""

    seed: int
    seconds: float = 0.0
    frames: int = 0
    restarts: int = 0
    #: what the broker has counted, in all its lives
    counters: dict[str, int] = field(default_factory=dict)
    #: connections that were refused before the broker's core, of which its log tells some
    malformed: int = 0
    #: the most processor time of the broker's loop that what one connection said took without a break
    longest_turn: float = 0.0
    published: int = 0
    delivered: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    #: errors that nobody has foreseen, which ended a connection only -> how many
    unforeseen: dict[str, int] = field(default_factory=dict)
    #: what is wrong; empty if nothing is
    failure: str = ""
    #: what was said last before the failure
    last: list[str] = field(default_factory=list)

    @property
    def never(self) -> list[str]:
        """What a broker counts and has not met in this run: code that hostile frames did not get to."""
        return [name for name, count in self.counters.items() if not count]

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as values that JSON can express."""
        return {name: getattr(self, name) for name in self.__slots__}


class Fuzzer:
    """One run, in a directory of its own."""

    def __init__(self, directory: Path, seed: int, *, is_secured: bool = False) -> None:
        """`is_secured`: the broker has accounts, and neighbours prove that they have the overlay's key."""
        self._directory = directory
        self._files = TargetFiles(directory) if is_secured else None
        self.report = FuzzReport(seed)
        self._chance = Random(seed)
        self._said = Said()
        self._connections: list[HostileConnection] = []
        #: name of a well-behaved client -> the number of its connection since the broker started
        self._numbers: dict[str, int] = {}
        #: whether the topology has a guest
        self._has_guest = False

    def run(
        self, seconds: float, *, steps_max: int | None = None, restart_steps: int = RESTART_STEPS
    ) -> FuzzReport:
        """Fuzz for so long, or for `steps_max` steps if that is shorter; the report says what came of it."""
        began = monotonic()
        login = self._files.environment if self._files is not None else {}
        with patch.dict(os.environ, login), ProcessHarness(self._directory) as harness:
            broker = harness.placed_broker("a", self._topology())
            try:
                self._fuzz(harness, broker, seconds, steps_max, restart_steps)
            except AssertionError as error:
                self.report.failure = str(error)
                self.report.last = list(self._said.last)
            finally:
                closed(self._connections)
                self._read_log(broker)
        self.report.seconds = round(monotonic() - began, 1)
        self.report.frames = self._said.frames
        self.report.kinds = dict(self._said.counts.most_common())
        self.report.heard = dict(self._said.heard.most_common())
        return self.report

    def _topology(self) -> Path:
        """A broker with neighbours around it, which call it and are not called by it."""
        path = self._directory / "overlay.toml"
        data, listen = self._directory / "a", f"127.0.0.1:{free_port()}"
        text = f'[brokers.a]\nlisten = "{listen}"\npubends = ["{PUBEND}"]\ndata_dir = "{data}"\nhttp = ""\n'
        for port, name in enumerate(NEIGHBOURS, 1):
            # Nobody listens there, and the broker does not call: its neighbours call it.
            pubend = pubend_of(name)
            text += f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\npubends = ["{pubend}"]\nparent = "a"\n'
        path.write_text(text)
        return path

    def _fuzz(
        self,
        harness: ProcessHarness,
        broker: ManagedBroker,
        seconds: float,
        steps_max: int | None,
        restart_steps: int,
    ) -> None:
        broker.start(*self._settings)
        publisher = harness.publisher(
            PUBLISHER, broker.url, 10**9, "--pubend", PUBEND, "--rate", str(EVENTS_A_SECOND), *PATIENT
        )
        harness.subscriber(SUBSCRIBER, broker.url, "", "--pubends", PUBEND, *PATIENT)
        harness.subscribe()
        publisher.start()
        publisher.reached(1)
        self._begin(broker)
        steps, until = 0, monotonic() + seconds
        while monotonic() < until and steps != steps_max:
            self._chance.choice(self._connections).step()
            steps += 1
            if steps % LOOK_STEPS == 0:
                self._look(broker)
            if steps % CHANGE_STEPS == 0:
                self._change(broker)
            if steps % restart_steps == 0:
                self._restart(broker)
        self._look(broker)
        self._restart(broker)
        publisher.reached(publisher.acknowledged + 1)
        self._look(broker)
        assert publisher.is_running, f"the publisher has ended: {publisher.last_line}"
        publisher.kill()
        self._judge(harness)

    def _begin(self, broker: ManagedBroker) -> None:
        pubends = [PUBEND, *map(pubend_of, NEIGHBOURS)]
        values = HostileValues(self._chance, pubends, ["a", *NEIGHBOURS])
        shared = _address(broker), values, FrameMaker(values), self._said
        self._connections = [HostileClient(f"evil-client-{number}", *shared) for number in range(CLIENTS)]
        self._connections += [HostileNeighbour(name, *shared) for name in NEIGHBOURS]
        if self._files is not None:
            self._connections += [HostileStranger(f"stranger-{number}", *shared) for number in range(CLIENTS)]
            self._arm(broker.name)

    def _arm(self, broker: str) -> None:
        """Give each hostile connection its proof, or none, and hold what it hears against its rights."""
        for number, each in enumerate(self._connections):
            each.host = HOSTILE_HOST
            if isinstance(each, HostileStranger):
                each.judge = judge_stranger
            elif isinstance(each, HostileClient):
                user, each.judge = (NOBODY, judge_nobody) if number % 3 == 0 else (LITTLE, judge_little)
                each.prove = partial(UserProof, user)
            elif number % 4 == 0:
                each.judge = judge_neighbour_without_proof
            else:
                each.prove = partial(NeighbourProof, each.who, broker)

    @property
    def _settings(self) -> list[str]:
        more = self._files.settings if self._files is not None else {}
        return [*SETTINGS, *set_arguments(more)]

    def _ask(self, broker: ManagedBroker, what: str, **arguments: object) -> str:
        proving = UserProof(GOOD) if self._files is not None else None
        return ask(_address(broker), what, proving, **arguments)

    def _restart(self, broker: ManagedBroker) -> None:
        """Stop the broker in order, and start it on what the hostile frames have left on its disk."""
        metrics = json.loads(self._ask(broker, "metrics"))
        for name in COUNTED:
            self.report.counters[name] = self.report.counters.get(name, 0) + int(metrics[name])
        code = broker.stop()
        assert code == 0, f"the broker was told to stop, and ended with {code}: {broker.last_line}"
        closed(self._connections)
        broker.start(*self._settings)
        self._numbers.clear()
        self.report.restarts += 1

    def _change(self, broker: ManagedBroker) -> None:
        """Take a broker into the topology, or out of it, as an administrator does."""
        if self._files is not None:
            text = self._files.document(self._chance.choice(CHANGES))
            version = json.loads(self._ask(broker, ACCESS.what))["version"]
            self._ask(broker, PROPOSE_ACCESS.what, text=text, base=version)
        base = json.loads(self._ask(broker, "overlay"))["version"]
        # Without its last keys, which are of one machine only.
        first, *others = (self._directory / "overlay.toml").read_text().split("\n[")
        head = "\n".join(line for line in first.splitlines() if not line.startswith(("data_dir", "http")))
        self._has_guest = not self._has_guest
        text = "\n[".join((head + "\n", *others)) + (GUEST if self._has_guest else "")
        self._ask(broker, "propose", text=text, base=base, force=True)

    def _look(self, broker: ManagedBroker) -> None:
        """Raise AssertionError unless the broker runs, answers, and has kept its well-behaved clients.

        Nor may anything that was said since the broker started have taken too long.
        """
        assert broker.is_running, f"the broker has ended: {broker.last_line}"
        longest = float(json.loads(self._ask(broker, "metrics"))["turn_longest_seconds"])
        self.report.longest_turn = max(self.report.longest_turn, longest)
        assert longest <= TURN_SECONDS_MAX, f"a turn of the broker took {longest:.3f} s of processor time"
        there = json.loads(self._ask(broker, "connections"))
        for name in (PUBLISHER, SUBSCRIBER):
            found = [each["client"] for each in there if each["name"] == name]
            known = self._numbers.get(name)
            if known is None and found:
                self._numbers[name] = found[0]
            assert known is None or known in found, f"{name} was disconnected"

    def _judge(self, harness: ProcessHarness) -> None:
        found = harness.settled(SETTLE_SECONDS)
        self.report.published = found.published
        self.report.delivered = sum(each.delivered for each in found.accounts)
        for account in found.accounts:
            for fault in ("lost", "duplicated", "out_of_order", "wrong"):
                keys = getattr(account, fault)
                assert not keys, f"{account.subscriber}: {len(keys)} events {fault}, the first is {keys[0]}"
            assert not account.in_gaps, f"{account.subscriber}: {account.in_gaps} events in gaps"
        assert self.report.delivered, "nothing was delivered"

    def _read_log(self, broker: ManagedBroker) -> None:
        """Count what the broker refused, and what nobody has foreseen, by its log."""
        found: Counter[str] = Counter()
        for line in broker.log.read_text(errors="replace").splitlines() if broker.log.exists() else ():
            if any(text in line for text in UNFORESEEN):
                found[line[-600:]] += 1
            elif '"a frame is refused"' in line:
                said = json.loads(line)
                if not FORESEEN.match(said["cause"]):
                    found[f"{said['cause']:.200} at {said['place']}"] += 1
            elif '"refused"' in line and '"code": "frame"' in line:
                self.report.malformed += 1
        self.report.unforeseen = dict(found.most_common(20))
        if self.report.failure and broker.log.exists():
            traces = [line for line in broker.log.read_text(errors="replace").splitlines() if "trace" in line]
            self.report.last += traces[-1:]


def _address(broker: ManagedBroker) -> tuple[str, int]:
    host, _, port = broker.address.partition(":")
    return host, int(port)
