"""How a broker becomes part of a running overlay: any broker of the overlay is asked to add it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.admin.connection import ANSWER_SECONDS, connect
from tidemark.errors import ConfigError, RefusedError
from tidemark.wire.answers import OVERLAY, PROPOSE

if TYPE_CHECKING:
    from tidemark.node.config.settings import Config
    from tidemark.node.topology.topology import Topology

EVERYWHERE = ("0.0.0.0", "::")
#: Others may be joining at the same time, and each of them changes the topology's version.
TRIES_MAX = 20


def settings_to_join(
    name: str, listen: str, data_dir: str | None, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a broker that joins an overlay as `name`; those `given` win where they may."""
    return {
        "broker.listen": listen,
        "http.listen": "",
        **given,
        "broker.name": name,
        "storage.data_dir": data_dir or given.get("storage.data_dir", f"tidemark-data-{name}"),
    }


def join_overlay(url: str, config: Config, cell: str, listen: str, pubends: tuple[str, ...]) -> Config:
    """Add a broker to the overlay that the broker at `url` is in, and return the configuration to run it.

    `listen` is the address at which others call the new broker. An overlay that has the broker already stays
    as it is. Raises ConfigError for an address that others cannot call, or another broker of the same name.
    """
    from tidemark.node.config.loading import moved
    from tidemark.node.config.units import parse_address
    from tidemark.node.topology.file import parse_topology
    from tidemark.node.topology.plan import joined
    from tidemark.node.topology.text import to_text
    from tidemark.node.topology.topology import BrokerPlacement

    name, address = config.broker.name, parse_address(listen)
    if address.host in EVERYWHERE or not address.port:
        reason = (
            "others call it there: name an address and a port. To listen elsewhere too, --set broker.listen"
        )
        raise ConfigError(reason, key="--listen")
    with connect(url) as client:
        for _ in range(TRIES_MAX):
            found = client.ask(OVERLAY, timeout=ANSWER_SECONDS)
            topology = parse_topology(found.text, found.version, url)
            beside = topology.brokers[found.broker].cell
            topology = _reachable(topology, found.broker, url)
            wanted = joined(topology, BrokerPlacement(name, cell, address, pubends), beside)
            if name in topology.brokers:
                return moved(config, topology)
            try:
                client.ask(PROPOSE, timeout=ANSWER_SECONDS, text=to_text(wanted), base=topology.version)
            except RefusedError as error:
                if error.code != "version":
                    raise
            else:
                return moved(config, wanted)
    raise ConfigError("the overlay changes all the time: try again", source=url)


def _reachable(topology: Topology, name: str, url: str) -> Topology:
    """The topology in which a broker that listens on all its addresses has the one it was reached at."""
    from tidemark.client.connecting.addresses import parse_url

    placed = topology.brokers[name]
    if placed.listen.host not in EVERYWHERE:
        return topology
    reached = placed.listen._replace(host=parse_url(url)[0].host)
    brokers = {**topology.brokers, name: replace(placed, listen=reached)}
    return replace(topology, brokers=brokers)
