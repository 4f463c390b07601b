"""Asking all brokers of an overlay at once: what it is, how it is, and whether one of them is empty."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tidemark.admin.connection import ANSWER_SECONDS, connect
from tidemark.admin.overlay_description import Seen
from tidemark.errors import ClientError, NotConnectedError

if TYPE_CHECKING:
    from tidemark.node.topology.topology import Topology

#: Those that are not there are waited for together.
ASKED_AT_A_TIME_MAX = 16


def overlay_at(urls: Iterable[str]) -> tuple[Topology, str]:
    """The topology that the first of these brokers goes by that answers, and its name."""
    from tidemark.node.topology.file import parse_topology

    problem: ClientError = NotConnectedError("there is no broker to ask")
    for url in urls:
        try:
            with connect(url) as tm:
                found = tm.ask("overlay", timeout=ANSWER_SECONDS)
            return parse_topology(found["text"], found["version"]), found["broker"]
        except NotConnectedError as error:
            problem = error
    raise problem


def urls_of(topology: Topology) -> dict[str, str]:
    """Where each broker is."""
    return {name: f"tidemark://{each.listen}" for name, each in topology.brokers.items()}


def look(topology: Topology) -> dict[str, Seen | None]:
    """What each broker says of itself; None of those that do not answer."""
    urls = urls_of(topology)
    with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as asking:
        return dict(zip(urls, asking.map(_seen, urls.values()), strict=True))


def _seen(url: str) -> Seen | None:
    try:
        with connect(url) as tm:
            answers = {
                what: tm.ask(what, timeout=ANSWER_SECONDS)
                for what in ("status", "metrics", "links", "routes")
            }
    except ClientError:
        return None
    return Seen(time.monotonic(), **answers)


def propose(topology: Topology, *, is_forced: bool = False) -> dict[str, str]:
    """Tell every broker that answers to go by it; those that did not take it, and why."""
    from tidemark.node.topology.text import to_text

    text, base = to_text(topology), topology.version - 1

    def tell(url: str) -> str:
        try:
            with connect(url) as tm:
                tm.ask("propose", timeout=ANSWER_SECONDS, text=text, base=base, force=is_forced)
        except ClientError as error:
            return "not running" if isinstance(error, NotConnectedError) else str(error)
        return ""

    urls = urls_of(topology)
    with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as telling:
        said = dict(zip(urls, telling.map(tell, urls.values()), strict=True))
    return {name: problem for name, problem in said.items() if problem}


def holding(url: str) -> list[str] | None:
    """What a broker that is drained still has; None if it does not answer."""
    try:
        with connect(url) as tm:
            answers = [
                tm.ask(what, timeout=ANSWER_SECONDS) for what in ("pubends", "subscriptions", "streams")
            ]
    except ClientError:
        return None
    return held(*answers)


def held(
    pubends: Sequence[Mapping[str, Any]],
    subscriptions: Sequence[Mapping[str, Any]],
    streams: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What keeps a broker from being taken away; nothing when it is empty."""
    found = []
    for each in pubends:
        last, lost = each["last_event"], each["lost"]
        if last is not None and (lost is None or lost < last):
            found.append(f"not everybody has the events of {each['pubend']}")
    found += [f"the subscription {each['name']} is there" for each in subscriptions]
    hosted = {each["pubend"] for each in pubends}
    for each in streams:
        if each["followers"] and each["pubend"] not in hosted:
            found.append(f"{', '.join(each['followers'])} has {each['pubend']} from it")
    return found
