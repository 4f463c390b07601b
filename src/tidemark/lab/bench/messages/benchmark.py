"""How long it takes to get fields out of a message (gryphon-scalability V-D), and columns out of a batch.

Every format gets the same messages and the same choices of fields, made beforehand. The loop around them is
the same too, and its cost has a line of its own in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tidemark.lab.bench.measure import check_exact, race
from tidemark.lab.bench.messages.columns import measure_columns
from tidemark.lab.bench.messages.peers import DOM, TIDEMARK, Fetch, Format, formats
from tidemark.lab.bench.messages.samples import NINE_FIELD_SETS, Sample, at, field_sets, samples
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.message.types import Path

NOTHING = "the loop itself"

#: Microseconds in the paper: one field and nine fields; Gryphon's format and Xerces DOM; the six schemas.
PAPER_US: dict[int, dict[str, tuple[float, ...]]] = {
    1: {
        "paper: Gryphon": (5.5, 7.7, 5.5, 7.7, 5.5, 7.5),
        "paper: XML DOM (Xerces)": (948.9, 948.3, 1306.9, 1299.4, 1268.6, 1269.1),
    },
    9: {
        "paper: Gryphon": (27.5, 36.4, 27.6, 36.4, 25.4, 33.4),
        "paper: XML DOM (Xerces)": (1000.0, 982.6, 1693.4, 1671.0, 1617.2, 1625.6),
    },
}
NOTES = (
    "Best of many short repetitions in turns, the loop included; every value was checked beforehand.",
    "needed: decoded into a type that has only the fields asked for.",
)

Formats = Mapping[str, Callable[[Sample], Format]]
#: (bytes of a message, function that fetches the chosen fields) for each message
Pairs = list[tuple[bytes, Fetch]]
#: (sample, format) -> microseconds a message
_Best = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class MessagesEffort:
    """How much is measured."""

    messages: int
    rounds: int
    seed: int = 1


FULL = MessagesEffort(messages=1_000, rounds=80)
QUICK = MessagesEffort(messages=200, rounds=10)


def sections(effort: MessagesEffort, peers: Formats | None = None) -> Iterator[Section]:
    """Yields the sections; AssertionError when a format returns a wrong value."""
    peers = peers or formats()
    one = _measure(1, peers, effort)
    yield _grid(1, one)
    yield Section("one field: how many times faster Tidemark is", list(_ratios(one)), grid=True)
    yield Section("one field: goals", list(_goals(one)))
    yield _grid(9, _measure(9, peers, effort))
    yield measure_columns(effort.messages, effort.rounds, effort.seed)


def _measure(size: int, peers: Formats, effort: MessagesEffort) -> _Best:
    cases: dict[tuple[str, str], Callable[[], None]] = {}
    for sample in samples():
        prepared = _prepared(sample, peers, effort, size)
        cases[sample.name, NOTHING] = _empty_loop(prepared[TIDEMARK])
        cases |= {(sample.name, name): _loop(pairs) for name, pairs in prepared.items()}
    times = race(cases, effort.rounds)
    return {key: timing.best / effort.messages / 1_000 for key, timing in times.items()}


def _prepared(sample: Sample, peers: Formats, effort: MessagesEffort, size: int) -> dict[str, Pairs]:
    """Returns for each format the same messages with the same fields to fetch, all of them checked."""
    random = Random(effort.seed)
    values = [sample.message(random) for _ in range(effort.messages)]
    sets = [(path,) for path in sample.paths] if size == 1 else _nines(sample, random)
    chosen = random.choices(range(len(sets)), k=len(values))
    prepared: dict[str, Pairs] = {}
    for name, make in peers.items():
        of_format = make(sample)
        fetches = [of_format.one(each[0]) if size == 1 else of_format.several(each) for each in sets]
        messages = [of_format.encode(value) for value in values]
        prepared[name] = pairs = list(zip(messages, [fetches[which] for which in chosen], strict=True))
        _check(f"{sample.name}, {name}", pairs, values, [sets[which] for which in chosen])
    return prepared


def _nines(sample: Sample, random: Random) -> list[tuple[Path, ...]]:
    return field_sets(sample, random, 9, NINE_FIELD_SETS)


def _check(what: str, pairs: Pairs, values: list[Any], asked: list[tuple[Path, ...]]) -> None:
    for (data, fetch), value, paths in zip(pairs, values, asked, strict=True):
        found = fetch(data)
        for path, part in zip(paths, [found] if len(paths) == 1 else found, strict=True):
            check_exact(part, at(value, path), f"{what}, {'.'.join(path)}")


def _loop(pairs: Pairs) -> Callable[[], None]:
    def run() -> None:
        for message, fetch in pairs:
            fetch(message)

    return run


def _empty_loop(pairs: Pairs) -> Callable[[], None]:
    def run() -> None:
        for _message, _fetch in pairs:
            pass

    return run


def _grid(size: int, best: _Best) -> Section:
    words = {1: "one field", 9: "nine fields"}[size]
    own = [Measurement(sample, name, value, "us") for (sample, name), value in best.items()]
    names = list(dict.fromkeys(sample for sample, _ in best))
    title = f"{words} from the bytes of a message, microseconds"
    return Section(title, [*own, *_paper(size, names)], prefix=words, grid=True, notes=NOTES)


def _paper(size: int, names: Sequence[str]) -> Iterator[Measurement]:
    for metric, numbers in PAPER_US[size].items():
        for sample, value in zip(names, numbers, strict=True):
            yield Measurement(sample, metric, value, "us")


def _ratios(best: _Best) -> Iterator[Measurement]:
    for (sample, name), value in best.items():
        if name not in (TIDEMARK, NOTHING):
            yield Measurement(sample, f"than {name}", value / best[sample, TIDEMARK], "x")


def _goals(best: _Best) -> Iterator[Measurement]:
    for sample in dict.fromkeys(sample for sample, _ in best):
        mine = best[sample, TIDEMARK]
        flat = "flatInt" if sample.endswith("Int") else "flatString"
        if sample != flat:
            more = 100 * (mine / best[flat, TIDEMARK] - 1)
            yield Measurement(sample, f"more time than {flat}", more, "%", Goal("<=", 15))
        others = {name: value for (of, name), value in best.items() if of == sample}
        del others[TIDEMARK], others[NOTHING]
        yield Measurement(sample, f"faster than {DOM}", others[DOM] / mine, "x", Goal(">=", 100))
        rival = min(others, key=others.__getitem__)
        yield Measurement(
            sample, f"faster than the next best, {rival}", others[rival] / mine, "x", Goal(">", 1)
        )
