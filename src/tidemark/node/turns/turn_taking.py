"""TurnTaking: the receiving side of a connection; it handles what comes in slices of the loop's time.

What does not fit into a slice waits here, and the socket is not read meanwhile (`node.turns`).
"""

from __future__ import annotations

import asyncio

from tidemark.broker.preparation import Steps, Work
from tidemark.message.batches.batch import Buffer
from tidemark.node.clock import Clock
from tidemark.node.sockets import is_here
from tidemark.node.turns.accounts import Account
from tidemark.node.turns.turns import SLICE_FRAMES_MAX, SLICE_SECONDS, Turns
from tidemark.wire.decoder import FrameDecoder, FrameTally
from tidemark.wire.frames import Describe, Frame, Topic
from tidemark.wire.liveness.liveness import Liveness

#: Frames that are looked at for one slice, to find out whether they need steps.
READY_FRAMES = 32
#: While so much of what was sent to it waits, a client is not told of more topics: their schemas are large,
#: and asking for them takes a few bytes. It is more than a transport holds before it says that it is full.
UNREAD_BYTES_MAX = 1 << 20
#: What a frame took counts for one part in so many of what frames take, and for no more than these seconds:
#: what others have said is often settled together with a frame.
FRAMES_TOLD = 8
FRAME_SECONDS_MAX = 4 * SLICE_SECONDS


class TurnTaking(asyncio.BufferedProtocol):
    """The base of `Connection`, which says how bytes are decoded and what is done with frames."""

    __slots__ = (
        "_decoder",
        "_frame_seconds",
        "_goes_first",
        "_is_away",
        "_is_closing",
        "_is_parked",
        "_is_unread",
        "_is_waiting",
        "_prepared",
        "_steps",
        "_time",
        "_transport",
        "_turns",
        "_unheard",
        "account",
        "is_held",
        "liveness",
        "origin",
    )

    def __init__(self, turns: Turns, time: Clock, tally: FrameTally) -> None:
        """`turns` are those of the server, `time` is the loop's clock, `tally` counts what clients say."""
        self._turns = turns
        self._time = time
        #: the remote host, "" if that is this machine
        self.origin = ""
        #: what was used of the event loop's time; `opened_from` has the address count too
        self.account = Account(turns.clock)
        self._decoder = FrameDecoder(frames_max=SLICE_FRAMES_MAX, joins=True, divides=True)
        self._decoder.tally = tally
        #: frames that were decoded and wait for this connection's turn; at most SLICE_FRAMES_MAX
        self._unheard: list[Frame] = []
        #: what handling one frame of this connection has taken of late
        self._frame_seconds = 0.0
        #: None before the socket is open and after it is closed
        self._transport: asyncio.Transport | None = None
        self._is_closing = False
        #: this connection waits for its turn, and is not read meanwhile
        self._is_waiting = False
        #: the steps that are taken for the first frame in `_unheard`, and the frame whose steps were taken
        self._steps: Steps | None = None
        self._prepared: Frame | None = None
        #: the thread does steps for this connection before those of others that wait
        self._goes_first = False
        #: a thread does a step, and this connection has been left out of the turns until it is done
        self._is_away = self._is_parked = False
        #: nothing is read, because the disk is behind, the broker stops, or the next frame is a Describe and
        #: `_is_unread`: too much that was sent waits for the other side to read it
        self.is_held = self._is_unread = False
        #: whether the other side is alive, on the loop's clock; the server's sweeps judge by it
        self.liveness = Liveness(time())

    def opened_from(self, address: str) -> None:
        """The socket is open: what is used from now on counts for the remote address too."""
        self.origin = "" if is_here(address) else address
        self.account = self._turns.accounts.open(address)

    def _decode(self, data: Buffer) -> None:
        """Add the frames that `data` completes, or the next of those that have come before, to `_unheard`."""
        raise NotImplementedError

    def _hear(self, until: float) -> None:
        """Handle the frames in `_unheard`, as many as `_ready` says, until it is `until`."""
        raise NotImplementedError

    def _steps_for(self, frame: Frame) -> Steps | None:
        """Return the steps to take before `frame` is handled; None if it needs none."""
        raise NotImplementedError

    def _take_step(self, steps: Steps) -> tuple[Work | None, bool]:
        """Take one step; return the work that a thread has to do now, and whether it was the last step."""
        raise NotImplementedError

    def _ready(self, until: float) -> int:
        """Return how many of the frames in `_unheard` can be handled now; prepare the first that cannot.

        0 while a frame is prepared: by a thread, or in this connection's next slice.
        """
        if self._is_away or (self._steps is not None and not self._prepare(until)):
            return 0
        for at, frame in enumerate(self._unheard[:READY_FRAMES]):
            if type(frame) is Describe and self._has_unread():
                if not at:
                    self._is_unread = True
                    self.pause()
                return at
            steps = self._steps_for(frame) if frame is not self._prepared else None
            if steps is not None:
                if at:
                    return at
                self._steps = steps
                if not self._prepare(until):
                    return 0
            if type(frame) is Topic:
                return at + 1  # what follows may need steps because of it
        return min(len(self._unheard), READY_FRAMES)

    def _has_unread(self) -> bool:
        """Whether the other side leaves so much unread that it is told of no topics."""
        return self._transport is not None and self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX

    def was_read(self) -> None:
        """The other side has read what was sent to it: hear what waits for that."""
        if self._is_unread:
            self._is_unread = False
            self.resume()

    def _prepare(self, until: float) -> bool:
        """Take steps for the first frame in `_unheard`; return whether all have been taken."""
        assert self._steps is not None
        while not self._is_closing:
            work, is_last = self._take_step(self._steps)
            if is_last:
                self._steps, self._prepared = None, self._unheard[0]
                return True
            if work is not None:
                self._is_away = True
                self._turns.run(work, self._back, is_first=self._goes_first)
                return False
            if self._turns.work() > until:
                return False
        return False

    def _back(self, seconds: float) -> None:
        """The thread has done its step, which took so long: go on in this connection's turn."""
        self._is_away = False
        self.account.used(seconds)
        if self._is_parked:
            self._is_parked = False
            self._turns.wait(self)

    def become_link(self) -> None:
        """A broker is at the other end: its steps go first, and its neighbour counts what it says."""
        self._goes_first = True
        self._decoder.tally = {}

    def charge(self, seconds: float) -> None:
        """What was done for this connection elsewhere has used so much of the event loop's time."""
        self.account.used(seconds)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read: the disk is behind, the broker stops, or other connections go first."""
        return self.is_held or self._is_waiting

    @property
    def _has_more(self) -> bool:
        """Whether something has come that is not handled yet."""
        return (bool(self._unheard) or self._decoder.has_more) and not self._is_closing

    def received(self, data: Buffer) -> None:
        """Bytes have arrived: handle them at once, or let them wait for this connection's turn."""
        self.liveness.hear(self._time())
        if self._is_closing:
            return
        turns = self._turns
        turns.before_slice()
        began = turns.work()
        self._decode(data)
        may_go_now = not self._is_waiting and turns.may_go_now(self)
        if self._unheard and may_go_now and not self._is_closing:
            ended = self._hear_slice()
        else:
            ended = turns.work()
        turns.went(ended - began)
        turns.took(ended - began)
        self.account.used(ended - began)
        if (self._unheard or self._decoder.has_more) and not self._is_waiting and not self._is_closing:
            self._wait()

    @property
    def is_short(self) -> bool:
        """Whether the frames that wait take less than a slice, by what frames of this connection took."""
        if self._decoder.has_more or self._steps is not None or self._is_away:
            return False
        return len(self._unheard) * self._frame_seconds < SLICE_SECONDS

    def _hear_slice(self) -> float:
        """Handle the frames in `_unheard` for one slice, and note how long one of them took.

        Returns the time on `Turns.work` at which the slice has ended: asking for it takes a microsecond.
        """
        before = len(self._unheard)
        began = self._turns.work()
        self._hear(self._turns.deadline(began))
        ended = self._turns.work()
        took = min((ended - began) / max(1, before - len(self._unheard)), FRAME_SECONDS_MAX)
        self._frame_seconds += (took - self._frame_seconds) / (FRAMES_TOLD if self._frame_seconds else 1)
        return ended

    def go_on(self) -> bool:
        """Use one slice for what has come; return whether a part of it is left."""
        if self._is_away:
            self._is_parked = True
            return False
        turns = self._turns
        began = ended = turns.work()
        # What waits for the disk is handled when the disk has caught up: see `resume`.
        if self._has_more and not self.is_held:
            if not self._unheard:
                self._decode(b"")
            ended = self._hear_slice() if self._unheard and not self._is_closing else turns.work()
        turns.took(ended - began)
        self.account.used(ended - began)
        if self._has_more and not self.is_held:
            return True
        self._is_waiting = False
        self._read_or_not()
        return False

    def _wait(self) -> None:
        """Read nothing more until what has come is handled, in slices that the server gives in turns."""
        self._is_waiting = True
        self._read_or_not()
        self._turns.wait(self)

    def pause(self) -> None:
        """Read nothing more, and handle nothing that waits, until `resume`."""
        self.is_held = True
        self._read_or_not()

    def resume(self) -> None:
        """Read again, once what waits has been handled."""
        self.is_held = False
        if self._has_more and not self._is_waiting:
            self._wait()
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Have the transport read as `is_paused` says."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() is not self.is_paused:
            return
        if self.is_paused:
            transport.pause_reading()
        else:
            self.liveness.forgive(self._time())
            transport.resume_reading()

    def give_up_input(self) -> None:
        """Let go of what has arrived and is not handled; the connection is closed next."""
        self._decoder, self._unheard, self._steps = FrameDecoder(), [], None
