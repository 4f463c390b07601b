"""The story before the harm: what a broker and its clients did, and its data directory at several moments.

Readers come and go, acknowledge, hold their tokens or leave them to the broker; a topic and a subscription
are made late; history is let go. Copies of the directory are taken as a killed process leaves it, after a
clean stop, and in a second life of the broker, whose older copy is of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidemark.lab.damage.stepped_broker import BEGIN, MILLISECOND, SECOND, Reader, SteppedBroker, Writer

#: relative path -> bytes of every file of a data directory
Files = dict[str, bytes]

#: Events in the larger of the batches.
BATCH = 25


@dataclass(frozen=True)
class Moment:
    """A data directory at one moment, and the clients' ledgers of that moment."""

    name: str
    files: Files
    #: the same directory some time before
    earlier: Files
    readers: tuple[Reader, ...]
    writers: tuple[Writer, ...]
    #: microseconds
    now: int

    def clients(self) -> tuple[list[Reader], list[Writer]]:
        """Returns copies of the clients, for one judgement."""
        return [each.copy() for each in self.readers], [each.copy() for each in self.writers]


def files_of(directory: Path) -> Files:
    """Returns every file of a directory, without the lock."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def put_back(files: Files, directory: Path) -> None:
    """Make these the files of a directory that is new."""
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def tell(directory: Path) -> list[Moment]:
    """Play the story in a directory that does not exist yet.

    Returns the moments `killed`, `stopped` and `restarted`, which is in a second life.
    """
    broker = SteppedBroker(directory, BEGIN)
    writer, other = Writer("w"), Writer("v")
    live = Reader("live", 10, holds=True)
    lazy = Reader("lazy", 6, holds=True)
    kept = Reader("kept", 8, holds=False)
    late = Reader("late", 10, holds=False)
    readers, writers = (live, lazy, kept, late), (writer, other)

    def work(rounds: int, topic: str = "t") -> None:
        for number in range(rounds):
            broker.publish(writer, 1 + number % 3, topic)
            if number % 3 == 0:
                broker.publish(other, BATCH, topic)
            broker.pass_time(60 * MILLISECOND)
            for reader in (live, kept):
                if reader.client is not None and number % 4 == 3:
                    broker.acknowledge(reader)
        broker.pass_time(400 * MILLISECOND)

    for reader in (live, lazy, kept):
        broker.subscribe(reader)
    broker.pass_time(SECOND)
    work(30)
    broker.acknowledge(lazy)
    broker.leave(lazy)
    work(6)
    broker.leave(kept)
    earlier = files_of(directory)
    broker.subscribe(late)
    broker.pass_time(SECOND)
    work(5)
    broker.leave(late)
    work(12)
    broker.publish(other, 3, "u")
    broker.publish(writer, 5)
    killed = files_of(directory)
    moments = [_moment("killed", killed, earlier, readers, writers, broker.now)]
    broker.leave(live)
    broker.pass_time(SECOND)
    broker.stop()
    moments.append(_moment("stopped", files_of(directory), earlier, readers, writers, broker.now))
    broker = SteppedBroker(directory, broker.now + SECOND)
    for writer in writers:
        writer.client = None
    for reader in (live, lazy):
        broker.subscribe(reader)
    broker.pass_time(SECOND)
    work(9)
    broker.leave(lazy)
    work(3)
    moments.append(_moment("restarted", files_of(directory), killed, readers, writers, broker.now))
    broker.kill()
    return moments


def _moment(
    name: str,
    files: Files,
    earlier: Files,
    readers: tuple[Reader, ...],
    writers: tuple[Writer, ...],
    now: int,
) -> Moment:
    mine = tuple(each.copy() for each in readers), tuple(each.copy() for each in writers)
    return Moment(name, files, earlier, *mine, now)
