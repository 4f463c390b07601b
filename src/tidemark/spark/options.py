"""The options of the format "tidemark", checked: a misspelt option is refused, never ignored.

Spark hands options over as text and does not keep the case of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Literal, TypeVar

from tidemark.client.connecting.addresses import parse_url
from tidemark.errors import ConfigError, TidemarkError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern, parse_topic
from tidemark.message.codec.scalars import microseconds
from tidemark.spark.connections import urls_of
from tidemark.spark.locations import folder_at, location, staging_beside
from tidemark.spark.stores.folder import Folder
from tidemark.spark.stores.storage_options import load_storage_options
from tidemark.spark.time_travel.as_of import AsOf, as_of, parse_time, parse_version
from tidemark.ticks import CheckpointToken

#: How long a broker may be away before a query fails.
RETRY_SECONDS = 60.0
#: Of the option `job`, which becomes a part of a publisher's name and, escaped, of a file's name.
NAME_BYTES_MAX = 64
_BATCH_MAX = 10**18

_SOURCE = (
    "broker", "topic", "selector", "start", "end", "columns", "failOnGap", "maxEventsPerTrigger", "archive",
    "versionAsOf", "timestampAsOf", "origin", "pushFilters", "retrySeconds", "storageOptions",
)  # fmt: skip
_SINK = (
    "broker", "topic", "pubend", "key", "staging", "onError", "deadLetter", "job", "batch", "retrySeconds",
    "storageOptions",
)  # fmt: skip
#: Options that Spark itself sets, or a user sets for Spark.
_OF_SPARK = ("path", "checkpointlocation", "queryname", "outputmode")


#: How the options of CREATE TABLE ... USING begin.
_OF_TABLE = "option."

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Where reading starts or ends; one of the three is given.

    `at` the earliest or latest event there is, `after` a checkpoint token, or after one tick in every pubend.
    """

    at: Literal["earliest", "latest"] | None = None
    after: CheckpointToken | None = None
    tick: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read."""

    broker: str
    topic: str
    selector: str = ""
    start: ReadPoint = ReadPoint("earliest")
    #: of a batch read: nothing beyond is read
    end: ReadPoint = ReadPoint("latest")
    #: names of columns; None for all
    columns: tuple[str, ...] | None = None
    fail_on_gap: bool = True
    events_per_trigger_max: int | None = None
    archive: str | None = None
    #: of a batch read: the archive as it was then, and nothing else
    as_of: AsOf | None = None
    #: a column says whether a row came from the broker or from the archive
    origin: bool = False
    #: let the broker test the conditions of a query; see `spark.source.source`
    push_filters: bool = False
    retry_seconds: float = RETRY_SECONDS
    #: of the store that the archive is in, beside what the environment says; never shown
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def archive_folder(self) -> Folder | None:
        """Where the archive is; None if there is none."""
        return None if self.archive is None else folder_at(self.archive, self.storage)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write."""

    broker: str
    topic: str
    pubend: str | None = None
    #: the column whose value is the event's key
    key: str | None = None
    #: a directory, or a folder of an object store, that the driver and all executors share
    staging: str | None = None
    #: names a batch write, so that writing it again publishes nothing twice
    job: str | None = None
    #: the number of a batch of the job; one that is not beyond the last is not published again
    batch: int | None = None
    #: the topic or the directory of rows that do not fit; None if they make the write fail
    dead_letter: str | None = None
    retry_seconds: float = RETRY_SECONDS
    #: of the store that is staged in, beside what the environment says; never shown
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a read. Raises ConfigError, which says which option is wrong and how to write it."""
    options = _Options(given, _SOURCE)
    return SourceOptions(
        broker=options.required("broker", "tidemark://127.0.0.1:7676", _urls),
        topic=options.required("topic", "trades.>", _pattern),
        selector=options.get("selector", _selector, ""),
        start=options.get("start", parse_point, ReadPoint("earliest")),
        end=options.get("end", _end, ReadPoint("latest")),
        columns=options.get("columns", _names, None),
        fail_on_gap=options.get("failOnGap", _boolean, True),
        events_per_trigger_max=options.get("maxEventsPerTrigger", _count, None),
        archive=options.get("archive", location, None),
        as_of=as_of(
            options.get("versionAsOf", parse_version, None), options.get("timestampAsOf", parse_time, None)
        ),
        origin=options.get("origin", _boolean, False),
        push_filters=options.get("pushFilters", _boolean, False),
        retry_seconds=options.get("retrySeconds", _seconds, RETRY_SECONDS),
        storage=options.get("storageOptions", load_storage_options, {}),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises ConfigError, which says which option is wrong and how to write it."""
    options = _Options(given, _SINK)
    staging = options.get("staging", location, None) or options.get(
        "checkpointLocation", staging_beside, None
    )
    job = options.get("job", _name, None)
    if job is not None and staging is None:
        raise ConfigError(
            "a job that can be repeated needs `staging`, a directory that stays there until it is done",
            key="job",
        )
    batch = options.get("batch", _number, None)
    if batch is not None and job is None:
        raise ConfigError("is the number of a batch of a job: name that with `job`", key="batch")
    dead_letter = options.get("deadLetter", _dead_letter, None)
    if (options.get("onError", _on_error, "fail") == "deadletter") != (dead_letter is not None):
        raise ConfigError(
            'rows that do not fit go to a topic or directory with .option("onError", "deadletter")'
            '.option("deadLetter", "trades.bad"), which belong together',
            key="onError",
        )
    return SinkOptions(
        broker=options.required("broker", "tidemark://127.0.0.1:7676", _url),
        topic=options.required("topic", "trades", _topic),
        pubend=options.get("pubend", str, None),
        key=options.get("key", str, None),
        staging=staging,
        job=job,
        batch=batch,
        dead_letter=dead_letter,
        retry_seconds=options.get("retrySeconds", _seconds, RETRY_SECONDS),
        storage=options.get("storageOptions", load_storage_options, {}),
    )


def parse_point(text: str) -> ReadPoint:
    """`earliest`, `latest`, a checkpoint token as text or JSON, or a time in ISO 8601.

    A time without a zone is UTC. Reading starts with the events of that microsecond. Raises ConfigError.
    """
    if text == "earliest":
        return ReadPoint("earliest")
    if text == "latest":
        return ReadPoint("latest")
    if text.startswith("{"):
        return ReadPoint(after=CheckpointToken.from_json(text))
    if text.startswith("tm1."):
        return ReadPoint(after=CheckpointToken.parse(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is neither earliest, latest, a checkpoint token nor a time like 2026-01-31T12:00:00Z"
        ) from None
    return ReadPoint(tick=microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - 1)


def _end(text: str) -> ReadPoint:
    """Where reading ends; a time is the first that is not read."""
    if text == "earliest":
        raise ConfigError("reading ends at latest, a checkpoint token or a time like 2026-01-31T12:00:00Z")
    return parse_point(text)


class _Options:
    """Options by name, in any case. Raises ConfigError for a name that is not known."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        if any(name.startswith(_OF_TABLE) for name in self._given):
            raise ConfigError(
                "Spark keeps no options with a table of its catalog, so it could not be read. Use a view: "
                "CREATE TEMPORARY VIEW trades USING tidemark "
                "OPTIONS (broker 'tidemark://127.0.0.1:7676', topic 'trades')",
                key="CREATE TABLE",
            )
        lowered = {name.lower(): name for name in known}
        for name in self._given.keys() - lowered.keys() - set(_OF_SPARK):
            close = get_close_matches(name, lowered, 1)
            hint = f"did you mean {lowered[close[0]]}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"there is no such option here: {hint}", key=name)

    def get(self, name: str, read: Callable[[str], T], default: D) -> T | D:
        """The option's value as `read` parses it, or the default.

        Raises ConfigError if it cannot be parsed.
        """
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return read(text)
        except TidemarkError as error:
            raise ConfigError(str(error), key=name) from None

    def required(self, name: str, example: str, read: Callable[[str], T]) -> T:
        """The option's value. Raises ConfigError with the example if the option is not given."""
        if name.lower() not in self._given:
            raise ConfigError(f'is required: .option("{name}", "{example}")', key=name)
        found = self.get(name, read, None)
        assert found is not None
        return found


def _url(text: str) -> str:
    parse_url(text)
    return text


def _urls(text: str) -> str:
    """URLs of several brokers, whose pubends are read together."""
    urls_of(text)
    return text


def _pattern(text: str) -> str:
    TopicPattern.parse(text)
    return text


def _topic(text: str) -> str:
    parse_topic(text)
    return text


def _selector(text: str) -> str:
    parse(text)
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"{text!r} is not a list of different columns like symbol,price,_tick")
    return names


def _name(text: str) -> str:
    if not 1 <= len(text.encode()) <= NAME_BYTES_MAX:
        raise ConfigError(f"a name has 1 to {NAME_BYTES_MAX} bytes, not {len(text.encode())}")
    return text


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{text!r} is not a number of events, 1 or more")
    return int(text)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _BATCH_MAX:
        raise ConfigError(f"{text!r} is not the number of a batch, from 0 on")
    return int(text)


def _on_error(text: str) -> str:
    if text not in ("fail", "deadletter"):
        raise ConfigError(f"{text!r} is neither fail nor deadletter")
    return text


def _dead_letter(text: str) -> str:
    """A topic, or a folder: that has a slash in it."""
    return location(text) if "/" in text else _topic(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{text!r} is not a number of seconds")
    return seconds
