"""The options of a connection, which `connect` and `listen` take as keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.client.connecting.credentials import LoginOptions

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class ConnectOptions(LoginOptions, total=False):
    """What `connect` and `listen` both take as keywords, besides LoginOptions. Times are in seconds."""

    #: the name that administrators see; by default a new one for each client
    client: str | None
    #: the name of the publisher, for applications that number their events themselves: see Client.publish
    publisher: str | None
    #: the pubend to publish to; by default one of those that the broker hosts
    pubend: str | None
    #: how long a broker has to answer; by default 30
    timeout: float
    #: how long the first connection may take; by default 10
    connect_timeout: float
    #: wait so long also if nobody listens at any address, for programs that are started with their broker; by
    #: default that is an error at once
    wait_for_broker: bool
    #: how long a broker may be silent before the client asks whether it is there; by default 2
    ping: float
    #: of OpenTelemetry: what is published and received becomes spans (docs/monitoring.md); by default not
    tracer_provider: TracerProvider | None
