"""How a broker becomes part of a running overlay: it asks any of its brokers, and has itself added."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.admin.connection import ANSWER_SECONDS, connect
from tidemark.client.connecting.addresses import parse_url
from tidemark.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from tidemark.node.config.settings import Config
    from tidemark.node.topology.topology import Topology

EVERYWHERE = ("0.0.0.0", "::")
#: Others may be joining at the same time.
TRIES_MAX = 20


def _reachable(topology: Topology, name: str, url: str) -> Topology:
    """A broker that listens on all of its addresses is called where it was just reached."""
    placed = topology.brokers[name]
    if placed.listen.host not in EVERYWHERE:
        return topology
    reached = placed.listen._replace(host=parse_url(url)[0].host)
    brokers = {**topology.brokers, name: replace(placed, listen=reached)}
    return replace(topology, brokers=brokers)


def join_overlay(url: str, config: Config, cell: str, at: str, pubends: tuple[str, ...]) -> Config:
    """The configuration of a broker that the overlay has from now on, if it did not have it before.

    `at` is where others call it.
    """
    from tidemark.node.config.loading import moved
    from tidemark.node.config.units import parse_address
    from tidemark.node.topology.file import parse_topology
    from tidemark.node.topology.plan import joined
    from tidemark.node.topology.text import to_text
    from tidemark.node.topology.topology import BrokerPlacement

    name, listen = config.broker.name, parse_address(at)
    if listen.host in EVERYWHERE or not listen.port:
        reason = (
            "others call it there: name an address and a port. To listen elsewhere too, --set broker.listen"
        )
        raise ConfigError(reason, key="--listen")
    with connect(url) as tm:
        for _ in range(TRIES_MAX):
            found = tm.ask("overlay", timeout=ANSWER_SECONDS)
            topology = parse_topology(found["text"], found["version"], url)
            beside = topology.brokers[found["broker"]].cell
            topology = _reachable(topology, found["broker"], url)
            wanted = joined(topology, BrokerPlacement(name, cell, listen, pubends), beside)
            if name in topology.brokers:
                return moved(config, topology)
            try:
                tm.ask("propose", timeout=ANSWER_SECONDS, text=to_text(wanted), base=topology.version)
            except RefusedError as error:
                if error.code != "version":
                    raise
            else:
                return moved(config, wanted)
    raise ConfigError("the overlay changes all the time: try again", source=url)
