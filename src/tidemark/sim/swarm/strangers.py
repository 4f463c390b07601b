"""HostileStrangers: clients and neighbours that say to a broker what no client or neighbour should say.

What they say must be refused or do no harm: a neighbour is believed in its place only
(`broker.overlay.trust`), and lies about that place are not told here. Frames reach the broker as values, so
that what the decoder refuses is not tried here; the fuzzer does that (`lab.fuzz`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tidemark.sim.world.world import World
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.frames import (
    Ack,
    AckExpected,
    Ask,
    Claim,
    ClientFrame,
    Credit,
    Describe,
    Fetch,
    Fetched,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Nack,
    PeerFrame,
    Recalled,
    Release,
    ReleaseRow,
    Subscribe,
    Topic,
    Unfollow,
    Unsubscribe,
)
from tidemark.wire.limits import (
    CREDIT_BYTES_MAX,
    EPOCH_MAX,
    EPOCHS_AHEAD_US,
    INCARNATION_MAX,
    SEQUENCE_MAX,
    STAMP_MAX,
    VERSION_MAX,
)
from tidemark.wire.moving.frames import Left

#: The connection of a hostile client lasts this many microseconds.
STAYS_US = 20_000
NAME = "hostile"
LAST = CheckpointToken({"p": TICK_LAST})

CLIENT_FRAMES: tuple[ClientFrame, ...] = (
    Ask(1, "topics", "[" * 1_000),
    Ask(2, "seek", '{"name": "hostile", "to": ' + "9" * 5_000 + "}"),
    Ask(3, "no such question", '{"a": ' * 900),
    Subscribe(NAME, ">", "", False, CREDIT_BYTES_MAX, None, STAMP_MAX),
    Subscribe(NAME, ">", "n = = 1", False, 1),
    Subscribe(NAME, "", "", True, 1),
    Subscribe(NAME, "t.>", "(" * 100, False, 1),
    Credit(NAME, CREDIT_BYTES_MAX),
    Ack(((NAME, LAST),), 7),
    Ack((("nobody", LAST),), 8),
    Unsubscribe("nobody"),
    Topic("t.*", False, ("[n: int]",)),
    Topic("t.x", True, ("[",)),
    Describe(""),
    Recalled(1, TICK_MIN, TICK_LAST),
    Fetch(1, "nowhere", 0, TICK_LAST, ">", "", 1),
    Fetch(2, "p0", TICK_FIRST, TICK_LAST, ">", "(", CREDIT_BYTES_MAX),
)


class HostileStrangers:
    """Says hostile frames to brokers of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self, chance: Random) -> None:
        """Say something hostile to some broker that is up."""
        up = [name for name in self._world.layout.brokers if self._world.is_up(name)]
        if not up:
            return
        if self._world.last_fetch is not None and chance.random() < 0.5:
            self._answer_wrongly(chance)
        elif chance.random() < 0.3:
            self._leap(chance)
        else:
            self._speak(chance.choice(up), chance)

    def _speak(self, broker: str, chance: Random) -> None:
        """Say a few frames as a client, then leave."""
        client = self._world.connect(broker, _ignore, _ignore)
        for frame in chance.sample(CLIENT_FRAMES, 3):
            self._world.to_broker(client, frame)
        self._world.engine.after(STAYS_US, lambda: self._world.disconnect(client))

    def _answer_wrongly(self, chance: Random) -> None:
        """Answer the last fetch that a broker passed on with something else; the link must be refused."""
        assert self._world.last_fetch is not None
        asker, asked, frame = self._world.last_fetch
        right = Fetched(frame.ticket, frame.pubend, frame.base, frame.upto, TICK_MIN)
        wrong = chance.choice(({"pubend": "nowhere"}, {"base": frame.base - 1}, {"upto": frame.upto + 1}))
        self._hear(asker, asked, replace(right, **wrong))

    def _leap(self, chance: Random) -> None:
        """Say as a neighbour a number to which no honest broker comes; the link must be refused."""
        links = self._world.layout.all_links()
        if not links:
            return
        a, b = chance.choice(links)
        pubend = chance.choice(sorted(self._world.layout.pubends))
        host = chance.choice(self._world.layout.brokers)
        too_late = self._world.latest + 2 * EPOCHS_AHEAD_US
        row = ReleaseRow(host, SEQUENCE_MAX - chance.randrange(2), TICK_MAX, TICK_MAX)
        frames: tuple[PeerFrame, ...] = (
            Claim(NAME, EPOCH_MAX - chance.randrange(2), b, chance.random() < 0.5),
            Claim(NAME, too_late, b, chance.random() < 0.5),
            AckExpected(pubend, too_late),
            Nack(pubend, ((TICK_MIN, too_late),), 0),
            Knowledge(pubend, TICK_MIN, too_late, TICK_MIN, chance.random() < 0.5, 0),
            Left(pubend, NAME, 1, too_late, 1, ""),
            Release(pubend, (row,)),
            Interest(pubend, VERSION_MAX, None),
            Unfollow(pubend, VERSION_MAX),
            Heard(pubend, a, SEQUENCE_MAX),
            Knowledge(pubend, TICK_MIN, TICK_LAST, TICK_LAST, True, VERSION_MAX),
            Hello(b, INCARNATION_MAX),
        )
        self._hear(a, b, chance.choice(frames))

    def _hear(self, broker: str, peer: str, frame: PeerFrame) -> None:
        if self._world.is_up(broker):
            self._world.machines[broker].peer_frame(peer, frame)


def _ignore(*_: object) -> None:
    """A hostile client does not care what it is told."""
