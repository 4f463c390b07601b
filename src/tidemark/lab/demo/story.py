"""The story that `./run demo` plays, act by act, on real processes.

A broker, a publisher at a visible rate, and durable subscribers with different selectors are processes of
their own. Subscribers leave, crash and return; the publisher crashes; the broker is killed with SIGKILL.
The screen and the audit at the end are made from the ledgers of publisher and subscribers. Another act is a
method and a line in `acts`; `archived_story.py` adds acts with an archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemark.client.client import connect
from tidemark.lab.processes.client_processes import SCHEMA, TOPIC
from tidemark.lab.processes.process_harness import (
    PATIENCE_SECONDS,
    ManagedBroker,
    ManagedProcess,
    ManagedPublisher,
    ManagedSubscriber,
    ProcessHarness,
)

SELECTORS = {
    "everything": "",
    "bargains": "price < 20",
    "acme": "symbol = 'ACME'",
    "blocks": "qty * price > 40000 AND NOT symbol LIKE 'D%'",
    "letters": "symbol IN ('AXLE', 'BOLT') AND price BETWEEN 10 AND 60",
}
#: Extra bytes of a trade, so that sizes on disk are worth showing.
PADDING_BYTES = 100
#: How long the broker stays down after it was killed.
DEAD_SECONDS = 1.0
#: Seconds between lines of progress where there is no terminal.
NEWS_SECONDS = 2.0
LOOK_SECONDS = 0.05
BAR_CHARS = 30
#: The share of the trades by which the publisher may be ahead of what happens next in the story. Where the
#: machine is busy, all trades could otherwise be published before a subscriber has left.
LEAD = 0.08


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the story, played on the processes that earlier acts started."""

    title: str
    play: Callable[[], None]


class Story:
    """The story without an archive."""

    #: settings of the broker, as `section__key`
    settings: Mapping[str, str] = {}

    def __init__(self, harness: ProcessHarness, console: Console, events: int, rate: float) -> None:
        self._harness = harness
        self._console = console
        self._rate = rate
        self._began = monotonic()
        self._news_at = 0.0
        #: number of events that are published by the end of the story
        self.events = events
        #: name of a process that is not running -> why: away, crashed or killed
        self._absent: dict[str, str] = {}
        self._broker: ManagedBroker = harness.broker(**self.settings)
        self._subscribers: dict[str, ManagedSubscriber] = {}
        self._desk: ManagedPublisher | None = None

    def tell(self) -> None:
        """Play all acts. Afterwards the ledgers are complete and no client is running."""
        for act in self.acts():
            self._console.print(f"\n[bold]{act.title}[/]")
            act.play()

    # The acts.

    def acts(self) -> list[Act]:
        """Returns the acts in their order."""
        return [
            Act("A broker, five durable subscribers, a publisher", self._open),
            Act("Subscribers leave, and one crashes", self._come_and_go),
            Act("The broker is killed", self._lose_the_broker),
            Act("Crashes on both ends", self._crash_both_ends),
            Act("All is published, all are back", self._become_quiet),
        ]

    def _open(self) -> None:
        self._broker.start()
        self._say(f"a broker listens at [cyan]{self._broker.address}[/]")
        asyncio.run(_create_topic(self._broker.url))
        self._say(f"topic [cyan]{TOPIC}[/] declared: {escape(SCHEMA)}")
        for name, where in SELECTORS.items():
            self._subscribers[name] = self._harness.subscriber(name, self._broker.url, where)
        self._harness.subscribe()
        self._say(f"{len(SELECTORS)} durable subscribers, each with its own selector")
        settings = ("--rate", str(self._rate), "--timeout", "30", "--padding", str(PADDING_BYTES))
        self._desk = self._harness.publisher("desk", self._broker.url, self.events, *settings)
        self._desk.allow(0)
        self._desk.start()
        self._say(f"a publisher, {self._rate:g} trades a second")

    def _come_and_go(self) -> None:
        self._at(0.08, lambda: self._leave("bargains"))
        self._at(0.16, lambda: self._crash(self._subscribers["acme"]))
        self._at(0.24, lambda: self._leave("letters"))
        self._at(0.32, lambda: self._return("acme"))

    def _lose_the_broker(self) -> None:
        self._at(0.40, self._kill_the_broker)
        self._at(0.50, lambda: self._return("bargains"))

    def _crash_both_ends(self) -> None:
        self._at(0.58, lambda: self._crash(self._subscribers["blocks"]))
        self._at(0.66, self._crash_the_desk)
        self._at(0.74, lambda: self._crash(self._subscribers["everything"]))

    def _become_quiet(self) -> None:
        for share, name in ((0.82, "letters"), (0.88, "blocks"), (0.94, "everything")):
            if name in self._absent:
                self._at(share, partial(self._return, name))
        desk = self._publisher
        desk.allow(desk.count)
        self._until(lambda: not desk.is_running)
        self._say(f"all {desk.acknowledged:,} trades are published; the last ones are delivered")
        self._harness.settled()
        for part in self._harness.subscribers:
            part.stop()

    # What happens in the acts.

    def _at(self, share: float, happens: Callable[[], None]) -> None:
        """Do something as soon as this share of the trades is acknowledged, and before LEAD more are."""
        desk = self._publisher
        desk.allow(int((share + LEAD) * desk.count))
        self._until(lambda: desk.acknowledged >= share * desk.count)
        happens()

    @property
    def _publisher(self) -> ManagedPublisher:
        assert self._desk is not None
        return self._desk

    def _leave(self, name: str) -> None:
        self._subscribers[name].stop()
        self._absent[name] = "away"
        self._say(f"[cyan]{name}[/] leaves")

    def _crash(self, part: ManagedProcess) -> None:
        part.kill()
        self._absent[part.name] = "crashed"
        self._say(f"[cyan]{part.name}[/] crashes (SIGKILL)")

    def _return(self, name: str) -> None:
        self._subscribers[name].start()
        self._absent.pop(name)
        self._say(f"[cyan]{name}[/] returns, with the checkpoint token of its ledger")

    def _crash_the_desk(self) -> None:
        desk = self._publisher
        self._crash(desk)
        desk.start()
        self._absent.pop(desk.name)
        self._say(f"[cyan]{desk.name}[/] is back: what its ledger leaves open it publishes again, once")

    def _kill_the_broker(self) -> None:
        self._broker.kill()
        self._absent[self._broker.name] = "killed"
        self._say("[bold red]the broker is killed (SIGKILL)[/]")
        sleep(DEAD_SECONDS)
        self._broker.start()
        self._absent.pop(self._broker.name)
        self._say("the broker is back, and recovers from its disk")

    # On screen.

    def _until(self, condition: Callable[[], bool]) -> None:
        until = monotonic() + PATIENCE_SECONDS
        while not condition():
            if monotonic() > until:
                raise AssertionError(f"the story does not go on: {self._last_lines()}")
            self._news()
            sleep(LOOK_SECONDS)

    def _last_lines(self) -> str:
        servers = (part for part, _, _ in self._servers())
        parts = (*servers, *self._harness.publishers, *self._harness.subscribers)
        return "; ".join(f"{part.name}: {part.last_line}" for part in parts if part.last_line)

    def _say(self, what: str) -> None:
        self._console.print(f"[dim]{monotonic() - self._began:5.1f} s[/]  {what}", soft_wrap=True)

    def _news(self) -> None:
        if self._console.is_terminal or monotonic() < self._news_at:
            return
        self._news_at = monotonic() + NEWS_SECONDS
        published = ", ".join(
            f"{part.name} {part.acknowledged:,} of {part.count:,}" for part in self._harness.publishers
        )
        consumed = ", ".join(f"{part.name} {part.consumed:,}" for part in self._harness.subscribers)
        self._say(f"published: {published}; consumed: {consumed}")

    def picture(self) -> Table:
        """Returns a table of all processes with their numbers of events, from the ledgers as they are now."""
        table = Table(box=None, padding=(0, 2))
        for name in ("", "", "events", "selector"):
            table.add_column(name, justify="right" if name == "events" else "left")
        for publisher in self._harness.publishers:
            done = publisher.acknowledged
            filled = BAR_CHARS * done // publisher.count
            bar = f"[green]{'━' * filled}[/][dim]{'━' * (BAR_CHARS - filled)}[/]"
            table.add_row(f"[bold]{publisher.name}[/]", self._state(publisher), f"{done:,}", bar)
        for part in self._harness.subscribers:
            selector = escape(part.where or "everything")
            table.add_row(f"[cyan]{part.name}[/]", self._state(part), f"{part.consumed:,}", selector)
        for server, count, words in self._servers():
            table.add_row(f"[bold]{server.name}[/]", self._state(server), count, words)
        return table

    def _servers(self) -> list[tuple[ManagedProcess, str, str]]:
        """Returns (process, number of events, remark) for each process that serves the clients."""
        return [(self._broker, "", "")]

    def _state(self, part: ManagedProcess) -> str:
        absent = self._absent.get(part.name)
        if absent is not None:
            return f"[red]{absent}[/]"
        return "[green]running[/]" if part.is_running else "[dim]done[/]"


async def _create_topic(url: str) -> None:
    async with connect(url) as client:
        await client.create_topic(TOPIC, SCHEMA)
