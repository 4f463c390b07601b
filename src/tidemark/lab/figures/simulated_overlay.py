"""SimulatedOverlay: an overlay in the simulator for an experiment, with steady publishers and subscribers.

Experiments use the simulator only through this module. The checks of the simulator are on: an experiment in
which an event is lost, repeated or out of order ends with a ViolationError.
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
from tidemark.wire.frames import Answer, Ask, ClientFrame, Deliver, PeerFrame
from tidemark.wire.questions import Answered, Question

#: Links delay frames by 1 ms and lose nothing.
STEADY = LinkFaults(delay_min=1_000, delay_max=1_000)
#: Seconds until topics are declared and subscribers have started, before anything is measured.
SETTLE_S = 2.0
COMMIT_S = 0.1
CREDIT_BYTES = 1 << 20
#: Seconds within which every subscriber must have got everything at the end.
REST_S = 60.0


@dataclass
class ObservedSubscriber(SimSubscriber):
    """A subscriber of the simulator that calls `on_deliver` for every delivery."""

    on_deliver: Callable[[ObservedSubscriber, Deliver], None] = lambda _, __: None
    #: called after every frame
    on_frame: Callable[[], None] = lambda: None
    #: pubend -> the tick up to which it got everything, committed or not
    told: dict[str, int] = field(default_factory=dict)

    def come_to(self, machine: str) -> None:
        """Connect to this broker, wherever the subscriber was before."""
        self._move(machine)
        self.come()

    def receive(self, frame: ClientFrame) -> None:
        """Handle a frame, then report a delivery."""
        super().receive(frame)
        if isinstance(frame, Deliver):
            self.told[frame.pubend] = frame.upto
            self.on_deliver(self, frame)
        self.on_frame()


class SimulatedOverlay:
    """A simulated overlay. Times are seconds since its start; `time_of` converts ticks to them."""

    def __init__(self, plan: WorldPlan, seed: int = 1) -> None:
        self.world = World(plan, seed)
        self._start = self.world.engine.now
        #: key of an event -> the time at which it was published
        self.published: dict[str, float] = {}
        self.subscribers: list[ObservedSubscriber] = []
        self._is_publishing = True

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return (self.world.engine.now - self._start) / SECOND

    def time_of(self, tick: int) -> float:
        """Returns the time of a tick in seconds since the start."""
        return (tick - self._start) / SECOND

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self.world.engine.at(self._start + round(seconds * SECOND), action)

    def every(self, seconds: float, action: Callable[[], None], first: float = 0.0) -> None:
        """Repeat an action for as long as the world runs."""

        def again() -> None:
            action()
            self.world.engine.after(round(seconds * SECOND), again)

        self.at(max(first, self.now), again)

    def run(self, until: float) -> None:
        """Let simulated time pass until then; ViolationError if too much happens in this part of the run."""
        self.world.engine.begin_part()
        self.world.engine.run(self._start + round(until * SECOND))

    # Clients.

    def publisher(self, pubend: str, machine: str, every: float, first: float = SETTLE_S / 2) -> SimPublisher:
        """Start a publisher of an event every `every` seconds, until `stop_publishing`."""
        world = self.world
        name = f"pub{len(world.publishers)}"
        # A generator of its own: its events do not depend on other publishers.
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
        """Publish no more events."""
        self._is_publishing = False

    def subscriber(
        self, name: str, machine: str, selector: str = "", *, credit: int = CREDIT_BYTES
    ) -> ObservedSubscriber:
        """Returns a durable subscriber that holds its token, commits every COMMIT_S, and has not come yet."""
        made = ObservedSubscriber(self.world, name, machine, "t.>", selector, Random(name), credit)
        self.world.subscribers.append(made)
        self.subscribers.append(made)
        # Spread over time, so that not all commit in the same instant.
        self.every(COMMIT_S, made.commit, self.now + COMMIT_S * (len(self.subscribers) % 10) / 10)
        return made

    def latencies(self, frame: Deliver) -> list[tuple[float, float]]:
        """Returns (time of publishing, latency) in seconds of each event of a frame that arrives now."""
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
        """Ask a broker an administrator's question repeatedly while it is up; calls `heard(time, answer)`."""
        RepeatedQuery(self, machine, question, heard).begin(every)

    # Frames on the way, and stored events.

    def listen(
        self,
        between: Callable[[str, str, PeerFrame], None],
        to_client: Callable[[str, ClientFrame], None],
        from_client: Callable[[str, ClientFrame], None],
    ) -> None:
        """Call the functions for every frame between brokers, from a broker to a client, and back."""
        world, places = self.world, dict[int, str]()
        send, connect, tell, say = world.network.send, world.connect, world.to_client, world.to_broker

        def on_send(sender: str, receiver: str, frame: PeerFrame) -> None:
            between(sender, receiver, frame)
            send(sender, receiver, frame)

        def on_connect(
            name: str, receive: Callable[[ClientFrame], None], gone: Callable[[], None], user: str = ""
        ) -> int:
            client = connect(name, receive, gone, user)
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
        """Returns the number of events in the logs of a machine's pubends that are not released."""
        world, far = self.world, self.world.latest
        here = [pubend for pubend, host in world.plan.pubends.items() if host == machine]
        return sum(
            len(world.ground_truth.within(pubend, world.checks.lost.get(pubend, 0), far)) for pubend in here
        )

    def remembered_bytes(self, machine: str) -> int:
        """Returns the bytes in the windows of a machine's broker."""
        return sum(size for _, size in self.world.machines[machine].window_bytes())

    def finish(self) -> None:
        """Stop publishing, let the world rest, and check it; ViolationError if a promise was broken."""
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
    """Asks one broker the same administrator's question again and again."""

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
        #: ticket -> the time of the question; several questions may be unanswered
        self._asked: dict[int, float] = {}

    def begin(self, every: float) -> None:
        """Begin to ask, every `every` seconds."""
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
