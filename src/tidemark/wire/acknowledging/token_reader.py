"""TokenReader: the checkpoint tokens of one frame, most of which are of the same pubends."""

from __future__ import annotations

from struct import Struct

from tidemark.message.batches.batch import Buffer
from tidemark.ticks import TICK_FIRST, TICK_LAST, CheckpointToken
from tidemark.wire.fields import read_token, write_name

#: Tokens that a reader learns the layout of.
LAYOUTS_LEARNT_MAX = 8
_U32 = Struct("<I")
_NO_TICKS = CheckpointToken()


class TokenReader:
    """Reads the tokens of one frame.

    Tokens of the same pubends have all their bytes at the same places: one `Struct` reads all ticks, and what
    stands between them is compared and not decoded again.
    """

    __slots__ = ("_between", "_learnt", "_pubends", "_struct")

    def __init__(self) -> None:
        self._learnt = 0
        #: of the token that was learnt last: its layout, what is not a tick in it, and its pubends in order
        self._struct = Struct("<4s")
        self._between: tuple[bytes, ...] = (bytes(4),)
        self._pubends: tuple[str, ...] = ()

    def read(self, data: Buffer, at: int, end: int) -> tuple[CheckpointToken, int]:
        """The token at data[at], and the offset of the next field, as `read_token` reads it."""
        stop = at + self._struct.size
        if stop <= end:
            parts = self._struct.unpack_from(data, at)
            if parts[::2] == self._between:
                ticks = parts[1::2]
                if not ticks:
                    return _NO_TICKS, stop
                if min(ticks) >= TICK_FIRST and max(ticks) <= TICK_LAST:
                    return CheckpointToken.of_checked(dict(zip(self._pubends, ticks, strict=True))), stop
        token, stop = read_token(data, at, end)
        if self._learnt < LAYOUTS_LEARNT_MAX:
            self._learn(token, data, at, stop)
        return token, stop

    def _learn(self, token: CheckpointToken, data: Buffer, at: int, stop: int) -> None:
        self._learnt += 1
        names = [write_name(pubend) for pubend in token]
        if not names:
            return
        between = (_U32.pack(len(names)) + names[0], *names[1:])
        struct = Struct("<" + "".join(f"{len(each)}sq" for each in between))
        # The pubends of a token on the wire may be in any order: those in another one are not learnt.
        if struct.size == stop - at and struct.unpack_from(data, at)[::2] == between:
            self._struct, self._between, self._pubends = struct, between, tuple(token)
