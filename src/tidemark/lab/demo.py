"""The story that `./run demo` tells: what works today, on real bytes, checked against the reference.

Trades are published as event batches while the schema grows a field; thousands of subscribers state what
they want; the matcher says who gets what; and every decision is compared with the plain reading of each
selector, event by event. At the end a whole network of brokers runs under faults in the simulator.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import Selector
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry, TopicSchemas
from tidemark.message.schema import Schema
from tidemark.sim.swarm import run_seed

TOPIC = "trades.equity"
V1 = "[symbol: string, price: double, qty: int, account: string]"
V2 = "[symbol: string, price: double, qty: int, account: string, venue: { lit: [] | dark: [] }?]"
EVENTS = 20_000
BATCH_EVENTS = 256
SUBSCRIBERS = 2_000
#: Events whose every decision is recomputed by the reference evaluator.
CHECKED_EVENTS = 100
#: The seed of the simulated network at the end: four brokers, a fifth of all frames lost, a dozen crashes.
WORLD = 11


@dataclass
class Tally:
    """What happened, as the last table shows it."""

    published: int = 0
    bytes: int = 0
    matched: int = 0
    deliveries: int = 0
    match_sets: set[int] = field(default_factory=set)
    checked: int = 0
    missed: int = 0
    wrong: int = 0

    def as_dict(self) -> dict[str, int]:
        """The same, for scripts."""
        return {
            "published": self.published,
            "bytes": self.bytes,
            "matched": self.matched,
            "deliveries": self.deliveries,
            "match_sets": len(self.match_sets),
            "decisions_checked": self.checked,
            "missed": self.missed,
            "wrongly_delivered": self.wrong,
        }


def run(*, as_json: bool = False) -> int:
    """Tell the story; 0 when every checked decision was right."""
    console = Console(stderr=as_json, highlight=False)
    source = random.Random(2003)
    topic = Registry().declare(TOPIC, Schema.parse(V1))
    console.print(f"[bold]1.[/] topic [cyan]{TOPIC}[/] declared: {escape(V1)}")
    selectors = list(_selectors(source))
    matcher = _matcher(topic, selectors)
    console.print(f"[bold]2.[/] {len(matcher):,} subscribers, such as [cyan]{escape(selectors[0])}[/]")
    tally = Tally()
    batches = list(_publish(source, topic, console))
    matcher.retype(topic.reader)
    for batch in track(batches, description="   matching", console=console, transient=True):
        _match(matcher, topic, batch, tally)
    console.print(f"[bold]3.[/] {tally.published:,} events matched in batches of {BATCH_EVENTS}")
    _check(matcher, topic, batches, selectors, tally, console)
    console.print(f"[bold]4.[/] {tally.checked:,} decisions compared with the reference evaluator")
    world = run_seed(WORLD)
    console.print(
        f"[bold]5.[/] a simulated network of brokers: {world.crashes} crashes, {world.events:,} events, "
        f"{world.deliveries:,} deliveries, judged by the oracle: nothing lost, repeated or out of order"
    )
    if as_json:
        print(json.dumps(tally.as_dict()))
    else:
        _show(tally, console)
    return 1 if tally.missed or tally.wrong else 0


def _selectors(source: random.Random) -> Iterator[str]:
    for _ in range(SUBSCRIBERS):
        symbol, price = f"S{source.randrange(100):03}", source.uniform(1, 100)
        letter = source.choice("abcdef")
        yield source.choice(
            (
                f"symbol = '{symbol}' AND price > {price:.2f}",
                f"price BETWEEN {price:.2f} AND {price + 1:.2f} AND account LIKE '{letter}%'",
                f"symbol IN ('{symbol}', 'S001') AND qty * price > {1000 * price:.0f}",
                f"venue = 'dark' AND symbol = '{symbol}'",
                f"venue IS NULL AND qty < 5 AND NOT symbol LIKE '%{source.randrange(10)}'",
            )
        )


def _matcher(topic: TopicSchemas, selectors: list[str]) -> Matcher:
    """Selectors over the coming version are checked against it: subscribers may be ahead of publishers."""
    coming = Schema.parse(V2)
    matcher = Matcher(coming)
    for subscriber, text in enumerate(selectors):
        matcher.add(subscriber, Selector.parse(text, coming))
    assert topic.versions
    return matcher


def _publish(source: random.Random, topic: TopicSchemas, console: Console) -> Iterator[EventBatch]:
    tick = 1_700_000_000_000_000
    for first in range(0, EVENTS, BATCH_EVENTS):
        if first <= EVENTS // 2 < first + BATCH_EVENTS:
            topic.register(Schema.parse(V2))
            console.print("   half way the schema gains [cyan]venue[/]; old and new events mix")
        builder = BatchBuilder()
        for _ in range(min(BATCH_EVENTS, EVENTS - first)):
            schema = source.choice(topic.versions)
            shape = Shape(TOPIC, schema.fingerprint)
            builder.add(shape, schema.encode(_event(source, schema)), publisher="desk-1")
        batch = builder.build()
        for row in range(batch.count):
            tick += source.randrange(1, 100)
            batch.ticks[row] = tick
        yield EventBatch.parse(batch.data)


def _event(source: random.Random, schema: Schema) -> dict[str, Any]:
    event: dict[str, Any] = {
        "symbol": f"S{source.randrange(100):03}",
        "price": round(source.uniform(1, 100), 2),
        "qty": source.randrange(1, 1_000),
        "account": source.choice("abcdef") + f"{source.randrange(10_000):04}",
    }
    if schema.type_of(("venue",)) is not None:
        event["venue"] = source.choice((None, "lit", "dark"))
    return event


def _match(matcher: Matcher, topic: TopicSchemas, batch: EventBatch, tally: Tally) -> None:
    sets = matcher.match(topic.reader.columns(batch))
    tally.published += batch.count
    tally.bytes += len(batch.data)
    tally.matched += int((sets != 0).sum())
    tally.deliveries += sum(len(matcher.members(match_set)) for match_set in sets.tolist())
    tally.match_sets.update(sets.tolist())


def _check(
    matcher: Matcher,
    topic: TopicSchemas,
    batches: list[EventBatch],
    texts: list[str],
    tally: Tally,
    console: Console,
) -> None:
    trees = [Selector.parse(text, topic.reader).tree for text in texts]
    step = EVENTS // CHECKED_EVENTS
    for event in track(range(0, EVENTS, step), description="   checking", console=console, transient=True):
        batch, row = batches[event // BATCH_EVENTS], event % BATCH_EVENTS
        one = batch.slice(row, row + 1)
        found = set(matcher.members(int(matcher.match(topic.reader.columns(one))[0])).tolist())
        value = topic.reader.decode(batch, row)
        wanted = {
            subscriber
            for subscriber, tree in enumerate(trees)
            if evaluate(tree, lambda path, value=value: value.get(path[0])) is True  # type: ignore[misc]
        }
        tally.checked += len(trees)
        tally.missed += len(wanted - found)
        tally.wrong += len(found - wanted)


def _show(tally: Tally, console: Console) -> None:
    table = Table(title="what happened", show_header=False)
    for name, count in tally.as_dict().items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    console.print(table)
    verdict = (
        "[green]every decision was right" if not (tally.missed or tally.wrong) else "[red]WRONG DECISIONS"
    )
    console.print(verdict)
