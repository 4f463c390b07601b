"""Answers of several brokers as one: the pubends that they host, and the topics that they know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from tidemark.errors import ConfigError
from tidemark.message.generations import creation_of
from tidemark.wire.answers import PubendStatus, TopicStatus


@dataclass(frozen=True, slots=True)
class HostedPubend(PubendStatus):
    """A pubend as its broker answers, and the URL of that broker."""

    broker: str = ""


def merged_pubends(answers: Iterable[tuple[str, Sequence[PubendStatus]]]) -> list[HostedPubend]:
    """The pubends of several brokers in one list by name; `answers` has the URL of each broker.

    Raises ConfigError if two brokers host a pubend of the same name.
    """
    found: dict[str, HostedPubend] = {}
    for url, pubends in answers:
        for each in pubends:
            if each.pubend in found:
                raise ConfigError(
                    f"the pubend {each.pubend!r} is hosted by {found[each.pubend].broker} and by {url}: "
                    "these are no brokers of one overlay, or one broker twice; read them one by one",
                    key="broker",
                )
            found[each.pubend] = HostedPubend(**asdict(each), broker=url)
    return [found[name] for name in sorted(found)]


def merged_topics(answers: Iterable[Sequence[TopicStatus]]) -> tuple[TopicStatus, ...]:
    """The topics of several answers by name, each with all versions of its schema that an answer has.

    A topic that was removed and created again is there once for each creation, the newest last.
    """
    found: dict[tuple[str, int], TopicStatus] = {}
    for topics in answers:
        for each in topics:
            key = (each.topic, creation_of(each.generation))
            before = found.get(key, each)
            schemas = tuple(dict.fromkeys([*before.schemas, *each.schemas]))
            found[key] = replace(each, schemas=schemas, generation=max(before.generation, each.generation))
    return tuple(found[key] for key in sorted(found))
