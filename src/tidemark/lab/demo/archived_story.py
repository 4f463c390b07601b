"""The story with an archive: a broker releases what is archived, and a subscriber gets it from the archive.

Nothing is archived at first, so the broker keeps every event that an absent subscriber has not got. Then the
archive runs beside the broker, which may hold little, and the broker releases what the archive has. A
subscriber that returns after that gets the released events from the archive, without a gap and without
repetition, as the ledgers show at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal

from tidemark.client.client import connect
from tidemark.lab.demo.story import Act, Story
from tidemark.lab.processes.process_harness import ManagedArchive, ManagedProcess, ProcessHarness
from tidemark.wire.answers import PUBENDS, SUBSCRIPTION, PubendStatus
from tidemark.wire.questions import Answered, Question

if TYPE_CHECKING:
    from tidemark.spark.archive.status import ArchiveStatus

#: Seconds between questions to the broker while the story waits for something.
ASK_SECONDS = 0.25
#: The subscriber that is away while the broker releases events.
LATE = "letters"


class ArchivedStory(Story):
    """The story with an archive."""

    #: the smallest possible values: a log file is removed only as a whole
    settings: Mapping[str, str] = {
        "retention__archive": "true",
        "retention__max_bytes": "64KiB",
        "storage__segment": "64KiB",
    }

    def __init__(self, harness: ProcessHarness, console: Console, events: int, rate: float) -> None:
        super().__init__(harness, console, events, rate)
        self._archive: ManagedArchive | None = None
        #: the broker's only pubend: as last asked for, and when the archive began; bytes on disk then
        self._pubend: PubendStatus | None = None
        self._before: PubendStatus | None = None
        self._disk_before = 0

    def acts(self) -> list[Act]:
        """Returns the acts in their order."""
        opening, leaving, killing, crashing, quiet = super().acts()
        return [
            *(opening, leaving, killing),
            Act("The archive begins", self._begin_the_archive),
            crashing,
            Act("The broker lets go what is archived", self._let_go),
            Act("One comes back from beyond what the broker holds", self._heal),
            quiet,
        ]

    def _begin_the_archive(self) -> None:
        self._at(0.52, self._ask)
        self._before, self._disk_before = self._pubend, self._disk_bytes
        held = decimal(_known(self._before).bytes)
        self._say(f"the broker holds {held} of trades: [cyan]{LATE}[/] is away")
        self._archive = self._harness.archive(self._broker.url)
        self._archive.start()
        self._say("[bold]archive[/] runs beside it: tidemark pipeline archive")

    def _let_go(self) -> None:
        """Wait until the broker has released everything that it held when the archive began.

        The broker keeps the newest `retention.max_bytes`, so more than that has to be published afterwards.
        """
        self._at(0.8, self._ask)
        self._publisher.allow(self._publisher.count)
        self._wait_and_ask(lambda: (_known(self._pubend).lost or 0) >= (_known(self._before).last_event or 0))
        found = self._archived()
        self._say(
            f"the archive has {found.events:,} trades, {decimal(found.event_bytes)}, "
            f"in {found.files:,} files of {decimal(found.bytes)} together"
        )
        self._say(
            f"the broker held {decimal(_known(self._before).bytes)} and holds "
            f"{decimal(_known(self._pubend).bytes)}; "
            f"its log took {decimal(self._disk_before)} on disk and takes {decimal(self._disk_bytes)}"
        )

    def _heal(self) -> None:
        part, archive = self._subscribers[LATE], self._archive
        assert archive is not None
        had, recalled, lost = part.consumed, archive.recalled, _known(self._pubend).lost or 0
        self._return(LATE)
        self._wait_and_ask(lambda: archive.recalled > recalled and part.consumed > had and self._is_level())
        healed = part.consumed_upto(lost) - had
        self._say(
            f"[cyan]{LATE}[/] is healed from the archive: {healed:,} of the trades that it had missed "
            "the broker had let go before it came"
        )

    # What the acts need to know.

    def _wait_and_ask(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, asking the broker before each look."""
        asked_at = 0.0

        def holds() -> bool:
            nonlocal asked_at
            if monotonic() < asked_at + ASK_SECONDS:
                return False
            self._ask()
            asked_at = monotonic()
            return condition()

        self._until(holds)

    def _ask(self) -> None:
        (self._pubend,) = asyncio.run(_asked(self._broker.url, PUBENDS))

    def _is_level(self) -> bool:
        """Whether the subscriber that was late is connected, not catching up, and has no recall open."""
        found = asyncio.run(_asked(self._broker.url, SUBSCRIPTION, name=LATE))
        (at,) = found.pubends.values()
        return found.connected and not at.catching_up and at.recall is None

    def _archived(self) -> ArchiveStatus:
        """As `tidemark pipeline status --offline` says it."""
        # Imported only here: the story without an archive does not need it.
        from tidemark.spark.archive.status import status

        assert self._archive is not None
        return status(self._archive.path, None)

    @property
    def _disk_bytes(self) -> int:
        """Bytes of all files of the broker's log."""
        sizes = []
        for path in (self._harness.directory / self._broker.name / "log").rglob("*"):
            try:
                sizes.append(path.stat().st_size if path.is_file() else 0)
            except FileNotFoundError:  # the file was just removed
                continue
        return sum(sizes)

    def _servers(self) -> list[tuple[ManagedProcess, str, str]]:
        held = "" if self._pubend is None else f"holds {decimal(self._pubend.bytes)}"
        servers: list[tuple[ManagedProcess, str, str]] = [(self._broker, "", held)]
        if self._archive is not None:
            servers.append((self._archive, f"{self._archive.archived:,}", "archived"))
        return servers


def _known(pubend: PubendStatus | None) -> PubendStatus:
    assert pubend is not None, "the broker has not been asked yet"
    return pubend


async def _asked(url: str, question: Question[Answered], **arguments: Any) -> Answered:
    async with connect(url) as client:
        return await client.ask(question, **arguments)
