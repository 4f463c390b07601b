"""The story that `./run demo` tells, on real processes, and the sums at its end.

A broker, a publisher at a visible rate, and durable subscribers with different selectors, each a process of
its own. Subscribers leave, crash and return; the publisher crashes; the broker is killed with SIGKILL. Then
the ledgers that they wrote are compared: what was published, who was to get it, who got it, and whether
anything was lost, repeated or out of order. What is on screen comes from the same ledgers.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from tidemark.client.client import connect
from tidemark.lab.ledger import Audit
from tidemark.lab.parties import SCHEMA, TOPIC
from tidemark.lab.stage import PATIENCE_SECONDS, BrokerPart, Part, PublisherPart, Stage

EVENTS = 8_000
RATE = 500
SELECTORS = {
    "everything": "",
    "bargains": "price < 20",
    "acme": "symbol = 'ACME'",
    "blocks": "qty * price > 40000 AND NOT symbol LIKE 'D%'",
    "letters": "symbol IN ('AXLE', 'BOLT') AND price BETWEEN 10 AND 60",
}
#: Of the table at the end.
COLUMNS = ("matched", "delivered", "lost", "duplicated", "out_of_order", "wrong", "gaps")
#: How long the broker stays dead.
DEAD_SECONDS = 1.0
#: Without a terminal to draw on, how often a line says how far it is.
NEWS_SECONDS = 2.0
LOOK_SECONDS = 0.05
REFRESHES_A_SECOND = 8
BAR_CHARS = 30


class Demo:
    """One telling of the story."""

    def __init__(self, stage: Stage, console: Console, events: int, rate: float) -> None:
        self._stage = stage
        self._console = console
        self._events = events
        self._began = monotonic()
        self._news_at = 0.0
        self._broker: BrokerPart = stage.broker()
        self._rate = rate
        #: what became of whoever is not there
        self._absent: dict[str, str] = {}

    # The story.

    def tell(self) -> Audit:
        """From an empty directory to the sums."""
        self._broker.start()
        self._say(f"a broker listens at [cyan]{self._broker.address}[/]")
        asyncio.run(_create_topic(self._broker.url))
        self._say(f"topic [cyan]{TOPIC}[/] declared: {escape(SCHEMA)}")
        for name, where in SELECTORS.items():
            self._stage.subscriber(name, self._broker.url, where)
        publisher = self._stage.publisher(
            "desk", self._broker.url, self._events, "--rate", str(self._rate), "--timeout", "30"
        )
        self._stage.subscribe()
        self._say(f"{len(SELECTORS)} durable subscribers, each with its own selector")
        publisher.start()
        self._say(f"a publisher, {self._rate:g} trades a second")
        for share, act in self._acts(publisher):
            self._until(lambda share=share: publisher.acknowledged >= share * self._events)  # type: ignore[misc]
            act()
        self._until(lambda: not publisher.is_running)
        self._say(f"all {publisher.acknowledged:,} trades are published; the last ones are delivered")
        audit = self._stage.settled()
        for part in self._stage.subscribers:
            part.stop()
        return audit

    def _acts(self, publisher: PublisherPart) -> list[tuple[float, Callable[[], None]]]:
        """(share of the trades that are acknowledged by then, what happens)"""
        part = {each.name: each for each in self._stage.subscribers}
        return [
            (0.08, lambda: self._leave(part["bargains"])),
            (0.16, lambda: self._crash(part["acme"])),
            (0.24, lambda: self._leave(part["letters"])),
            (0.32, lambda: self._return(part["acme"])),
            (0.40, self._kill_the_broker),
            (0.50, lambda: self._return(part["bargains"])),
            (0.58, lambda: self._crash(part["blocks"])),
            (0.66, lambda: self._crash_and_restart(publisher)),
            (0.74, lambda: self._crash(part["everything"])),
            (0.82, lambda: self._return(part["letters"])),
            (0.88, lambda: self._return(part["blocks"])),
            (0.94, lambda: self._return(part["everything"])),
        ]

    def _leave(self, part: Part) -> None:
        part.stop()
        self._absent[part.name] = "away"
        self._say(f"[cyan]{part.name}[/] leaves")

    def _crash(self, part: Part) -> None:
        part.kill()
        self._absent[part.name] = "crashed"
        self._say(f"[cyan]{part.name}[/] crashes (SIGKILL)")

    def _return(self, part: Part) -> None:
        part.start()
        self._absent.pop(part.name)
        self._say(f"[cyan]{part.name}[/] returns, with the checkpoint token of its ledger")

    def _crash_and_restart(self, part: Part) -> None:
        self._crash(part)
        part.start()
        self._absent.pop(part.name)
        self._say(f"[cyan]{part.name}[/] is back: what its ledger leaves open it publishes again, once")

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
                raise AssertionError(f"the story does not go on: {self._last_words()}")
            self._news()
            sleep(LOOK_SECONDS)

    def _last_words(self) -> str:
        parts = (self._broker, *self._stage.publishers, *self._stage.subscribers)
        return "; ".join(f"{part.name}: {part.last_words}" for part in parts if part.last_words)

    def _say(self, what: str) -> None:
        self._console.print(f"[dim]{monotonic() - self._began:5.1f} s[/]  {what}", soft_wrap=True)

    def _news(self) -> None:
        if self._console.is_terminal or monotonic() < self._news_at:
            return
        self._news_at = monotonic() + NEWS_SECONDS
        consumed = ", ".join(f"{part.name} {part.consumed:,}" for part in self._stage.subscribers)
        self._say(f"published {self._stage.publishers[0].acknowledged:,} of {self._events:,}; {consumed}")

    def picture(self) -> Table:
        """Everybody, and how far they are, as their ledgers say just now."""
        table = Table(box=None, padding=(0, 2))
        for name in ("", "", "events", "selector"):
            table.add_column(name, justify="right" if name == "events" else "left")
        for publisher in self._stage.publishers:
            done = publisher.acknowledged
            filled = BAR_CHARS * done // self._events
            bar = f"[green]{'━' * filled}[/][dim]{'━' * (BAR_CHARS - filled)}[/]"
            table.add_row(f"[bold]{publisher.name}[/]", self._state(publisher), f"{done:,}", bar)
        for part in self._stage.subscribers:
            selector = escape(part.where or "everything")
            table.add_row(f"[cyan]{part.name}[/]", self._state(part), f"{part.consumed:,}", selector)
        table.add_row("[bold]broker[/]", self._state(self._broker), "", "")
        return table

    def _state(self, part: Part) -> str:
        absent = self._absent.get(part.name)
        if absent is not None:
            return f"[red]{absent}[/]"
        return "[green]running[/]" if part.is_running else "[dim]done[/]"


def run(*, as_json: bool = False, events: int = EVENTS, rate: float = RATE) -> int:
    """Tell the story; 0 when the ledgers agree that everything arrived exactly once and in order."""
    console = Console(stderr=as_json, highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    try:
        with _ended_by_signal(), Stage(directory) as stage:
            demo = Demo(stage, console, events, rate)
            with _drawn(demo, console):
                audit = demo.tell()
    except AssertionError as error:
        console.print(f"[red]{escape(str(error))}[/]\nwhat everybody wrote is in {directory}")
        return 1
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise
    # No retention policy lets anything go here, so nobody may be told of a gap either.
    is_right = audit.is_clean and audit.published == audit.acknowledged == events and not audit.total("gaps")
    if as_json:
        print(json.dumps({"ok": is_right, **audit.as_dict()}))
    else:
        _show(audit, console)
    if not is_right:
        console.print(f"[red]NOT exactly once: the ledgers are in {directory}")
        return 1
    console.print("[green]every subscriber got every trade it asked for, exactly once and in order")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _create_topic(url: str) -> None:
    async with connect(url) as client:
        await client.create_topic(TOPIC, SCHEMA)


def _drawn(demo: Demo, console: Console) -> Live | nullcontext[None]:
    """On a terminal the picture stays below the story, and is drawn again all the time."""
    if not console.is_terminal:
        return nullcontext()
    return Live(
        get_renderable=demo.picture,
        console=console,
        refresh_per_second=REFRESHES_A_SECOND,
        transient=True,
    )


def _show(audit: Audit, console: Console) -> None:
    table = Table(title=f"\npublished: {audit.published:,}, acknowledged: {audit.acknowledged:,}")
    table.add_column("subscriber")
    for name in COLUMNS:
        table.add_column(name.replace("_", " "), justify="right")
    for account in audit.accounts:
        alone = Audit(audit.published, audit.acknowledged, [account])
        table.add_row(account.subscriber, *(f"{alone.total(name):,}" for name in COLUMNS))
    table.add_section()
    table.add_row("all", *(f"{audit.total(name):,}" for name in COLUMNS), style="bold")
    console.print(table)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends it like Ctrl-C does: with all its processes."""

    def stop(_: int, __: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
