"""Harms: what is done to the files of a data directory, one thing at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tidemark.lab.damage.story import Files, Moment


@dataclass(frozen=True)
class Harm:
    """One thing that is done to a data directory."""

    #: none, bit, deleted or older
    kind: str
    #: a file, or a directory with a slash at its end
    where: str
    #: of a flipped bit
    offset: int = 0
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.where}" + (f" byte {self.offset} bit {self.bit}" * (self.kind == "bit"))

    def done_to(self, moment: Moment) -> Files:
        """Returns the files after the harm."""
        files = dict(moment.files)
        mine = [name for name in files if name == self.where or name.startswith(self.where)]
        match self.kind:
            case "bit":
                data = bytearray(files[self.where])
                data[self.offset] ^= 1 << self.bit
                files[self.where] = bytes(data)
            case "deleted":
                for name in mine:
                    del files[name]
            case "older":
                for name in mine:
                    del files[name]
                of_then = moment.earlier.items()
                files |= {name: data for name, data in of_then if name.startswith(self.where)}
            case _:
                pass
        return files


def whole_files(moment: Moment) -> Iterator[Harm]:
    """Yields the harms of whole files and directories: each deleted, and replaced by its older copy."""
    yield Harm("none", "")
    directories = sorted({f"{name.partition('/')[0]}/" for name in moment.files if "/" in name})
    for where in (*moment.files, *directories):
        yield Harm("deleted", where)
        if any(name.startswith(where) for name in moment.earlier):
            yield Harm("older", where)


def flipped_bits(moment: Moment, places: int, chance: Random) -> Iterator[Harm]:
    """Yields so many flipped bits, spread over all files: half by their number, half by their size.

    The reserves are large and empty, and get their part by number only.
    """
    names = [name for name, data in moment.files.items() if data]
    sizes = [0 if name.endswith("reserve") else len(moment.files[name]) for name in names]
    for number in range(places):
        if number % 2:
            name = chance.choices(names, sizes)[0]
        else:
            name = names[number // 2 % len(names)]
        size = len(moment.files[name])
        # The end of a file is where a torn tail and rot look alike.
        offset = chance.randrange(max(0, size - 600), size) if number % 5 == 0 else chance.randrange(size)
        yield Harm("bit", name, offset, chance.randrange(8))
