"""The flow of events that a command publishes: lines as they come, or events that are made, at a pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from tidemark.cli.connection import Interrupts
from tidemark.cli.pubsub.values import Make

READ_BYTES_MAX = 1 << 18
#: An event has at most 1 MiB as a message; its JSON is a few times as long at the most.
LINE_BYTES_MAX = 8 << 20
#: Events that are made or published together.
SLICE_EVENTS_MAX = 1_000
#: How often a paced flow goes on; the events that are due by then are published together.
SLICE_SECONDS = 0.01


def lines_of(stream: BinaryIO, interrupts: Interrupts) -> Iterator[list[str]]:
    """Yield the whole lines that have arrived, as soon as there are any; end when interrupted, too."""
    #: the pieces of a line that has not ended yet, and their bytes
    rest: list[bytes] = []
    held = 0
    while True:
        try:
            with interrupts.waiting():
                read = stream.read1(READ_BYTES_MAX)  # type: ignore[attr-defined]  # BufferedReader's, BytesIO's
        except KeyboardInterrupt:
            return
        first, *others = read.split(b"\n")
        rest.append(first)
        held += len(first)
        if held > LINE_BYTES_MAX:
            raise click.ClickException(
                f"a line is over {LINE_BYTES_MAX >> 20} MiB: write one event a line, as a JSON object"
            )
        if others or not read:
            whole = [b"".join(rest), *others[:-1]]
            rest = others[-1:]
            held = sum(map(len, rest))
            yield [line.decode(errors="replace") for line in whole]
        if not read:
            return


def lines_in(file: Path, interrupts: Interrupts) -> Iterator[list[str]]:
    """Yield the lines of a file, once."""
    with file.open("rb") as stream:
        yield from lines_of(stream, interrupts)


def lines_again(file: Path) -> Iterator[list[str]]:
    """Yield the lines of a file over and over; ClickException if the file has none."""
    lines = [line for line in file.read_text().splitlines() if line.strip()]
    if not lines:
        raise click.ClickException(f"{file} has no events: write a JSON object a line")
    while True:
        for at in range(0, len(lines), SLICE_EVENTS_MAX):
            yield lines[at : at + SLICE_EVENTS_MAX]


def made(make: Make, count: int | None) -> Iterator[list[Any]]:
    """Yield the events number 1, 2, 3 ... up to `count`, or for ever."""
    first = 1
    while count is None or first <= count:
        behind = first + SLICE_EVENTS_MAX if count is None else min(first + SLICE_EVENTS_MAX, count + 1)
        yield [make(number) for number in range(first, behind)]
        first = behind


def at_most(values: Iterator[list[Any]], count: int | None) -> Iterator[list[Any]]:
    """Yield the first `count` values; all of them if `count` is None."""
    if count is None:
        yield from values
        return
    while count > 0 and (some := next(values, None)) is not None:
        yield some[:count]
        count -= len(some)


def paced(values: Iterator[list[Any]], rate: float | None, interrupts: Interrupts) -> Iterator[list[Any]]:
    """Yield at most `rate` values a second, counted from the beginning; end when interrupted."""
    began, given = time.monotonic(), 0
    for some in values:
        while some and not interrupts.is_interrupted:
            due = len(some) if rate is None else int((time.monotonic() - began) * rate) + 1 - given
            if due <= 0:
                assert rate is not None
                interrupts.sleep(max(SLICE_SECONDS, began + given / rate - time.monotonic()))
                continue
            yield some[:due]
            given += min(due, len(some))
            some = some[due:]
        if interrupts.is_interrupted:
            return
