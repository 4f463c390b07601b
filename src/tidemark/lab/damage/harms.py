"""Harms: what is done to the files of a data directory, one thing at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tidemark.lab.damage.story import Files, Moment


@dataclass(frozen=True)
class Harm:
    """One thing that is done to a data directory."""

    #: none, bit, deleted, emptied, cut (to half of its bytes) or older
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
        mine = [name for name in files if self._meets(name)]
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
                files |= {name: data for name, data in of_then if self._meets(name)}
            case "emptied":
                files |= dict.fromkeys(mine, b"")
            case "cut":
                files |= {name: files[name][: len(files[name]) // 2] for name in mine}
            case _:
                pass
        return files

    def _meets(self, name: str) -> bool:
        """Whether this file is harmed. Beside a file may be others whose names begin with its name."""
        return name == self.where or (self.where.endswith("/") and name.startswith(self.where))


def whole_files(moment: Moment) -> Iterator[Harm]:
    """Yields the harms of whole files and directories: each deleted, and replaced by its older copy.

    Each file is also emptied, and cut to a half. A file that was there earlier and is gone comes back.
    """
    yield Harm("none", "")
    for name in sorted(moment.files.keys() | moment.earlier.keys()):
        if name in moment.files:
            yield Harm("deleted", name)
            yield Harm("emptied", name)
            yield Harm("cut", name)
        if name in moment.earlier:
            yield Harm("older", name)
    for where in sorted({f"{name.partition('/')[0]}/" for name in moment.files if "/" in name}):
        yield Harm("deleted", where)
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
