"""The story with an archive: a broker lets go what is archived, and one who was away gets it from there.

Nothing is archived at first, so the broker keeps all that somebody who is away has not got. Then the archive
runs beside it, and the broker, which may hold little, lets go what the archive has. Who comes back after that
is healed from the archive: no gap and nothing twice, as the same ledgers show at the end.
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
from tidemark.wire.answers import PUBENDS, SUBSCRIPTION, Answered, PubendStatus, Question

if TYPE_CHECKING:
    from tidemark.spark.archive.status import ArchiveStatus

#: How often the broker is asked while something is waited for.
ASK_SECONDS = 0.25
#: Who is away while the broker lets go what it has not got.
LATE = "letters"


class ArchivedStory(Story):
    """One telling of it."""

    #: The least that there is, for a log file goes as a whole.
    settings: Mapping[str, str] = {
        "retention__archive": "true",
        "retention__max_bytes": "64KiB",
        "storage__segment": "64KiB",
    }

    def __init__(self, harness: ProcessHarness, console: Console, events: int, rate: float) -> None:
        super().__init__(harness, console, events, rate)
        self._archive: ManagedArchive | None = None
        #: the broker's only pubend as the broker last answered, and as it was when the archive began; None
        #: before the broker was asked
        self._pubend: PubendStatus | None = None
        self._before: PubendStatus | None = None
        self._disk_before = 0

    def acts(self) -> list[Act]:
        """In their order."""
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
        self._say(
            f"the broker holds {decimal(_known(self._before).bytes)} of trades: [cyan]{LATE}[/] is away"
        )
        self._archive = self._harness.archive(self._broker.url)
        self._archive.start()
        self._say("[bold]archive[/] runs beside it: tidemark pipeline archive")

    def _let_go(self) -> None:
        """All that it held when the archive began."""
        self._at(0.8, self._ask)
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

    # What they need to know.

    def _wait_and_ask(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds of what the broker says."""
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
        """Whoever was late is neither given anything from the archive any more nor catching up."""
        found = asyncio.run(_asked(self._broker.url, SUBSCRIPTION, name=LATE))
        (at,) = found.pubends.values()
        return found.connected and not at.catching_up and at.recall is None

    def _archived(self) -> ArchiveStatus:
        """As `tidemark pipeline status --offline` says it."""
        # Only here: the story without an archive needs none of it.
        from tidemark.spark.archive.status import status

        assert self._archive is not None
        return status(self._archive.path, None)

    @property
    def _disk_bytes(self) -> int:
        """What the broker's log takes."""
        sizes = []
        for path in (self._harness.directory / self._broker.name / "log").rglob("*"):
            try:
                sizes.append(path.stat().st_size if path.is_file() else 0)
            except FileNotFoundError:  # it was just let go
                continue
        return sum(sizes)

    def _servers(self) -> list[tuple[ManagedProcess, str, str]]:
        held = "" if self._pubend is None else f"holds {decimal(self._pubend.bytes)}"
        servers: list[tuple[ManagedProcess, str, str]] = [(self._broker, "", held)]
        if self._archive is not None:
            servers.append((self._archive, f"{self._archive.archived:,}", "archived"))
        return servers


def _known(pubend: PubendStatus | None) -> PubendStatus:
    assert pubend is not None, "the broker was not asked yet"
    return pubend


async def _asked(url: str, question: Question[Answered], **arguments: Any) -> Answered:
    async with connect(url) as client:
        return await client.ask(question, **arguments)
