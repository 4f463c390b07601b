"""HostState: the state that the parts of a host share."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.broker.hosting.constream import Constream
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.matching.audience import Audience


@dataclass(slots=True)
class HostState:
    """Who is hosted here and what feeds them. `Host` owns it; its parts hold it and read it."""

    #: every selector of the subscribers here, current or older, by member; only `Host` adds and removes
    audience: Audience
    #: id -> subscription, durable or not. Only `Host` adds and removes; `Host`, `Acknowledgements`,
    #: `CatchupStreams`, `Sessions` and `Admin` hold it, and each changes the fields of its own business
    subscriptions: dict[int, HostedSubscription] = field(default_factory=dict)
    #: pubend of the layout -> its constream. Only `Host` adds and removes; `Acknowledgements`,
    #: `CatchupStreams` and `Admin` hold it. `CatchupStreams` changes `catchups`, `Acknowledgements` finds
    #: `held`, which `Host` resets, and changes `chopped`, `MatchLog` raises `synced`, `Host` changes the rest
    constreams: dict[str, Constream] = field(default_factory=dict)
