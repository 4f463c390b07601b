"""Arguments of `subscribe`: what a subscriber wants, and who keeps its place."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypedDict, get_args

from tidemark.client.subscribing.start_position import Start, check_start
from tidemark.errors import ClientError
from tidemark.ticks import CheckpointToken

#: Bytes of events that the broker may send ahead of what was consumed, unless the application says otherwise.
WINDOW_BYTES_MAX = 4 << 20

#: When a durable subscription whose place the broker keeps is acknowledged: see Client.subscribe.
AckMode = Literal["auto", "gathered", "client", "transacted"]


class ServerKept(Enum):
    """The type of SERVER_KEPT."""

    SERVER_KEPT = "server kept"


#: Given as `checkpoint`: the broker keeps the token of the subscription.
SERVER_KEPT = ServerKept.SERVER_KEPT


class SubscribeOptions(TypedDict, total=False):
    """What `subscribe` takes as keywords besides `gaps` and `into`."""

    #: the name of a durable subscription; without it the subscription ends with its connection
    durable: str | None
    #: the token behind which the subscription goes on; by default the broker keeps the token
    checkpoint: CheckpointToken | ServerKept | None
    #: when what was handed out is acknowledged: see Client.subscribe
    ack: AckMode | None
    #: where a subscription starts, a durable one only if it does not exist yet; by default now
    start: Start | None
    #: bytes of events that the broker may send ahead of what was consumed; by default 4 MiB
    window_bytes_max: int


@dataclass(frozen=True, slots=True)
class SubscribeArguments:
    """The arguments of one call of `subscribe`, unchecked."""

    pattern: str
    selector: str
    durable: str | None = None
    checkpoint: CheckpointToken | ServerKept | None = SERVER_KEPT
    ack: AckMode | None = None
    start: Start | None = None
    window_bytes_max: int = WINDOW_BYTES_MAX
    #: gaps are items like events; otherwise a gap is raised as a GapError
    gaps: bool = False
    #: the dataclass that events are handed out as; None for Event
    into: type[Any] | None = None

    def check(self, now: datetime) -> None:
        """Raise ClientError if the arguments contradict each other, or `start` is later than `now`."""
        if self.durable is None and isinstance(self.checkpoint, CheckpointToken):
            raise ClientError(
                "a checkpoint needs a durable subscription: give it a name with durable=..., or start behind "
                "the token with start=..."
            )
        if self.durable is None and self.ack is not None:
            raise ClientError("only a durable subscription is acknowledged: give it a name with durable=...")
        if self.durable == "":
            raise ClientError("the name of a durable subscription has at least one character")
        if self.ack is not None and self.ack not in get_args(AckMode):
            raise ClientError(f"ack is one of {', '.join(get_args(AckMode))}, not {self.ack!r}")
        if self.into is not None and not (isinstance(self.into, type) and is_dataclass(self.into)):
            raise ClientError(f"into is a dataclass, not {self.into!r}")
        check_start(self.start, now)

    @property
    def token(self) -> CheckpointToken | None:
        """The checkpoint token that the application gave, None if it gave none."""
        return self.checkpoint if isinstance(self.checkpoint, CheckpointToken) else None

    @property
    def is_held(self) -> bool:
        """The application keeps the checkpoint token: only the application knows what it has committed."""
        return not isinstance(self.checkpoint, ServerKept)

    @property
    def mode(self) -> AckMode:
        """The way of acknowledging that was chosen; without a choice it depends on who keeps the token."""
        return self.ack or ("client" if self.is_held else "gathered")
