"""The settings of one pubend: the tables [pubends.NAME] of a file, or `--set pubends.NAME.KEY=VALUE`.

What a table leaves out is as the general settings say. Which priorities a pubend is for has no general
setting; it counts where `broker.assign` is "priority".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.errors import ConfigError
from tidemark.message.batches.batch import PRIORITY_MAX
from tidemark.node.config.settings import Config
from tidemark.node.config.units import Duration, Size
from tidemark.node.config.values import checked, shown

#: The section, or the first part of the key.
PUBENDS = "pubends"
#: key of a pubend -> the general setting that holds where the pubend has none
GENERAL: Mapping[str, str] = {
    "max_retain": "retention.max_retain",
    "max_bytes": "retention.max_bytes",
    "min_retain": "retention.min_retain",
    "archive": "retention.archive",
    "durability": "storage.durability",
}
PRIORITIES = "priorities"
KEYS_OF_PUBEND = (*GENERAL, PRIORITIES)


@dataclass(frozen=True, slots=True)
class PubendSettings:
    """What holds for one pubend."""

    max_retain: Duration | None
    max_bytes: Size | None
    min_retain: Duration | None
    archive: bool
    durability: str
    priorities: tuple[int, ...] = ()


def pubend_key(key: str) -> tuple[str, str] | None:
    """Returns pubend and key of `pubends.NAME.KEY`; None if `key` is not of that form."""
    section, _, rest = key.partition(".")
    name, _, what = rest.rpartition(".")
    return (name, what) if section == PUBENDS and name else None


def checked_of_pubend(what: str, value: Any) -> Any:
    """Returns `value` as the type of a pubend's key. Raises ConfigError if it is not one."""
    return _priorities(value) if what == PRIORITIES else checked(GENERAL[what], value)


def settings_of(config: Config, pubend: str) -> PubendSettings:
    """Returns what holds for a pubend: its own settings, and the general ones for the rest."""
    own = config.pubends.get(pubend, {})
    general = {what: config.value(key) for what, key in GENERAL.items()}
    return PubendSettings(**{**general, **own})


def has_archive(config: Config) -> bool:
    """Returns whether there is an archive for any pubend of the overlay."""
    return config.retention.archive or any(own.get("archive") for own in config.pubends.values())


def pubend_of_priority(config: Config, pubends: Iterable[str]) -> tuple[str, ...]:
    """Returns which of `pubends` each priority goes to, from 0 on; nothing if they leave one out."""
    found = {each: name for name in pubends for each in settings_of(config, name).priorities}
    return tuple(found[each] for each in sorted(found)) if len(found) == PRIORITY_MAX + 1 else ()


def show_pubends(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yields key, value and source of every setting that a pubend has of its own."""
    for name, own in config.pubends.items():
        for what, value in own.items():
            key = f"{PUBENDS}.{name}.{what}"
            text = f"[{', '.join(map(str, value))}]" if what == PRIORITIES else shown(GENERAL[what], value)
            yield key, text, config.sources[key]


def check_pubends(config: Config) -> None:
    """Raises ConfigError if settings of pubends contradict each other or the general ones."""
    known = {pubend for broker in config.topology.brokers.values() for pubend in broker.pubends}
    for name, own in config.pubends.items():
        key = f"{PUBENDS}.{name}.{next(iter(own))}"
        if name not in known:
            raise ConfigError(
                f"there is no pubend {name!r}: choose one of {', '.join(sorted(known))}",
                key=key,
                source=config.sources[key],
            )
        if own.get("durability") == "sync" and config.storage.durability == "os":
            key = f"{PUBENDS}.{name}.durability"
            reason = (
                'storage.durability = "os" is for the whole disk: leave it at sync, and set '
                'durability = "os" for the other pubends'
            )
            raise ConfigError(reason, key=key, source=config.sources[key])
    for broker in config.topology.brokers.values():
        _check_priorities(config, broker.pubends)


def _check_priorities(config: Config, pubends: Iterable[str]) -> None:
    taken: dict[int, str] = {}
    for name in pubends:
        for each in config.pubends.get(name, {}).get(PRIORITIES, ()):
            if each in taken:
                key = f"{PUBENDS}.{name}.{PRIORITIES}"
                reason = f"the priority {each} goes to {taken[each]!r} already"
                raise ConfigError(reason, key=key, source=config.sources[key])
            taken[each] = name
    left_out = sorted(set(range(PRIORITY_MAX + 1)) - taken.keys())
    if taken and left_out:
        key = f"{PUBENDS}.{next(iter(taken.values()))}.{PRIORITIES}"
        reason = f"no pubend of the same broker is for the priorities {', '.join(map(str, left_out))}"
        raise ConfigError(reason, key=key, source=config.sources[key])


def _priorities(value: Any) -> tuple[int, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ConfigError(f"{value!r} is not a list of priorities; write [7, 8, 9]")
    found: list[int] = []
    for item in items:
        number = int(item) if isinstance(item, str) and item.strip().isdecimal() else item
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= PRIORITY_MAX:
            raise ConfigError(f"{item!r} is no priority: those are from 0 to {PRIORITY_MAX}")
        found.append(number)
    return tuple(sorted(set(found)))
