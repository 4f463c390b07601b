"""SimStage: a simulated overlay for an experiment, with publishers at a steady pace, subscribers and probes.

Everything that an experiment does to the simulator, or learns from it, goes through here. The simulator's own
checks are on: an experiment in which something is lost, repeated or out of order ends with a ViolationError.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Generic

from tidemark.sim.judging.oracle import check_world, is_caught_up
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.sim.world.network import LinkFaults
from tidemark.sim.world.publisher import SimPublisher
from tidemark.sim.world.subscriber import SimSubscriber
from tidemark.sim.world.world import World
from tidemark.wire.answers import Answered, Question
from tidemark.wire.frames import Answer, Ask, ClientFrame, Deliver, PeerFrame

#: Links take this long, in microseconds, and lose nothing unless an experiment says so.
STEADY = LinkFaults(delay_min=1_000, delay_max=1_000)
#: Before anything is measured: topics are declared, subscribers have started.
SETTLE_S = 2.0
COMMIT_S = 0.1
CREDIT_BYTES = 1 << 20
#: At the end everybody has everything within this, or never will.
REST_S = 60.0


@dataclass
class ObservedSubscriber(SimSubscriber):
    """A subscriber that says what it hears, when it hears it."""

    on_deliver: Callable[[ObservedSubscriber, Deliver], None] = lambda _, __: None
    #: pubend -> the tick up to which it was told, also before it has committed
    told: dict[str, int] = field(default_factory=dict)

    def come_to(self, machine: str) -> None:
        """Come to this broker, wherever it was before."""
        self._move(machine)
        self.come()

    def receive(self, frame: ClientFrame) -> None:
        """As a subscriber does; then say so."""
        super().receive(frame)
        if isinstance(frame, Deliver):
            self.told[frame.pubend] = frame.upto
            self.on_deliver(self, frame)


class SimulatedOverlay:
    """See above. Times are seconds since the start, ticks are turned into such times by `time_of`."""

    def __init__(self, plan: WorldPlan, seed: int = 1) -> None:
        self.world = World(plan, seed)
        self._start = self.world.engine.now
        #: key of an event -> when its publisher made it
        self.published: dict[str, float] = {}
        self.subscribers: list[ObservedSubscriber] = []
        self._is_publishing = True

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return (self.world.engine.now - self._start) / SECOND

    def time_of(self, tick: int) -> float:
        """When a tick was, in seconds since the start."""
        return (tick - self._start) / SECOND

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it at this time."""
        self.world.engine.at(self._start + round(seconds * SECOND), action)

    def every(self, seconds: float, action: Callable[[], None], first: float = 0.0) -> None:
        """Do it again and again, for as long as the world runs."""

        def again() -> None:
            action()
            self.world.engine.after(round(seconds * SECOND), again)

        self.at(max(first, self.now), again)

    def run(self, until: float) -> None:
        """Let time pass up to then."""
        self.world.engine.run(self._start + round(until * SECOND))

    # People.

    def publisher(self, pubend: str, machine: str, every: float, first: float = SETTLE_S / 2) -> SimPublisher:
        """A publisher of an event every so many seconds, until `stop_publishing`."""
        world = self.world
        name = f"pub{len(world.publishers)}"
        # Its events are its own: another publisher more or less does not change them.
        made = SimPublisher(world, name, pubend, machine, Random(name), world.plan.validities)
        world.publishers.append(made)
        made.connect()

        def publish() -> None:
            if self._is_publishing and made.client is not None:
                made.publish(1)
                self.published[f"{name}/{made._sequence}"] = self.now

        self.every(every, publish, first)
        return made

    def stop_publishing(self) -> None:
        """No more events from now on."""
        self._is_publishing = False

    def subscriber(
        self, name: str, machine: str, selector: str = "", *, credit: int = CREDIT_BYTES
    ) -> ObservedSubscriber:
        """A durable subscriber that holds its token and commits ten times a second; it has not come yet."""
        made = ObservedSubscriber(self.world, name, machine, "t.>", selector, Random(name), credit)
        self.world.subscribers.append(made)
        self.subscribers.append(made)
        # Not all in the same instant.
        self.every(COMMIT_S, made.commit, self.now + COMMIT_S * (len(self.subscribers) % 10) / 10)
        return made

    def latencies(self, frame: Deliver) -> list[tuple[float, float]]:
        """(published, latency) of each event of a frame that arrives now, in seconds."""
        if frame.batch is None:
            return []
        keys = [self.world.key_of(frame.batch, row) for row in range(frame.batch.count)]
        return [
            (self.published[key], self.now - self.published[key]) for key in keys if key in self.published
        ]

    def ask_repeatedly(
        self,
        machine: str,
        question: Question[Answered],
        every: float,
        heard: Callable[[float, Answered], None],
    ) -> None:
        """Ask a broker an administrator's question again and again, while it is up; `heard(time, answer)`."""
        RepeatedQuery(self, machine, question, heard).begin(every)

    # What passes, and what is kept.

    def listen(
        self,
        between: Callable[[str, str, PeerFrame], None],
        to_client: Callable[[str, ClientFrame], None],
        from_client: Callable[[str, ClientFrame], None],
    ) -> None:
        """Hear of every frame that is sent: from broker to broker, and between a broker and its clients."""
        world, places = self.world, dict[int, str]()
        send, connect, tell, say = world.network.send, world.connect, world.to_client, world.to_broker

        def on_send(sender: str, receiver: str, frame: PeerFrame) -> None:
            between(sender, receiver, frame)
            send(sender, receiver, frame)

        def on_connect(name: str, receive: Callable[[ClientFrame], None], gone: Callable[[], None]) -> int:
            client = connect(name, receive, gone)
            places[client] = name
            return client

        def on_tell(client: int, frame: ClientFrame) -> None:
            to_client(places[client], frame)
            tell(client, frame)

        def on_say(client: int, frame: ClientFrame) -> None:
            from_client(places[client], frame)
            say(client, frame)

        world.network.send = on_send  # type: ignore[method-assign]  # a hook
        world.connect = on_connect  # type: ignore[method-assign]  # a hook
        world.to_client = on_tell  # type: ignore[method-assign]  # a hook
        world.to_broker = on_say  # type: ignore[method-assign]  # a hook

    def logged(self, machine: str) -> int:
        """Events in the logs of the pubends of a machine that were not let go."""
        world, far = self.world, self.world.latest
        here = [pubend for pubend, host in world.plan.pubends.items() if host == machine]
        return sum(
            len(world.ground_truth.within(pubend, world.checks.lost.get(pubend, 0), far)) for pubend in here
        )

    def remembered_bytes(self, machine: str) -> int:
        """What a machine's broker remembers of all streams."""
        return sum(size for _, size in self.world.machines[machine].window_bytes())

    def finish(self) -> None:
        """Come to rest and be judged: everyone has everything, once and in order."""
        self.stop_publishing()
        for subscriber in self.subscribers:
            subscriber.come()
        until = self.now + REST_S
        while self.now < until and not self._is_quiet():
            self.run(self.now + 0.5)
        check_world(self.world)

    def _is_quiet(self) -> bool:
        world = self.world
        return all(each.is_idle for each in world.publishers) and all(
            is_caught_up(each, world) for each in world.subscribers
        )


class RepeatedQuery(Generic[Answered]):
    """An administrator who keeps asking one broker the same."""

    def __init__(
        self,
        overlay: SimulatedOverlay,
        machine: str,
        question: Question[Answered],
        heard: Callable[[float, Answered], None],
    ) -> None:
        self._overlay = overlay
        self._machine = machine
        self._question = question
        self._heard = heard
        self._client: int | None = None
        self._ticket = 0
        #: ticket -> when it was asked; answers come in the order of questions, some after further ones
        self._asked: dict[int, float] = {}

    def begin(self, every: float) -> None:
        """From now on."""
        self._overlay.every(every, self._ask, self._overlay.now)

    def _ask(self) -> None:
        world = self._overlay.world
        if not world.is_up(self._machine):
            return
        if self._client is None:
            self._client = world.connect(self._machine, self._answered, self._gone)
        self._ticket += 1
        self._asked[self._ticket] = self._overlay.now
        world.to_broker(self._client, Ask(self._ticket, self._question.what))

    def _answered(self, frame: ClientFrame) -> None:
        assert isinstance(frame, Answer)
        self._heard(self._asked.pop(frame.ticket), self._question.read(json.loads(frame.payload)))

    def _gone(self) -> None:
        self._client = None
        self._asked.clear()
