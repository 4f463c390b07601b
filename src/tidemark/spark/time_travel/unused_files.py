"""UnusedFiles: since when files of an archive are in no current version of their table, and which may go.

A file that a commit has replaced stays for readers that have begun with it, and for those who read the
archive as it was. A process knows by its own clock how long it has seen a file unused; a file beside the
state says since which time, so that starting the process again does not begin anew. What a crash loses of
that file only makes files stay longer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

from tidemark.spark.archive.state import FOLDER
from tidemark.spark.stores.folder import Folder

NAME = "unused.json"


class UnusedFiles:
    """The unused files of one archive, as the process that writes it knows them."""

    def __init__(self, path: Folder, clock: Callable[[], float]) -> None:
        """`clock` is monotonic; the file has Unix times."""
        self._folder = path / FOLDER
        self._clock = clock
        #: root and name -> when this process first saw that no commit has the file, by `clock`
        self._seen: dict[tuple[str, str], float] = {}
        #: the same -> when some process did, as a Unix time
        self._since = self._load()

    def due(self, root: str, names: Iterable[str], grace: float, versions: float) -> list[str]:
        """Which of the unused files of a table have been unused for both times, in seconds.

        `names` are all that are unused now; others of the table are forgotten.
        """
        unused = {(root, name) for name in names}
        now, wall = self._clock(), time.time()
        before = dict(self._since)
        for known in (self._seen, self._since):
            for gone in [each for each in known if each[0] == root and each not in unused]:
                del known[gone]
        found = []
        for each in sorted(unused):
            seen, since = self._seen.setdefault(each, now), self._since.setdefault(each, wall)
            if now - seen >= grace and wall - since >= versions:
                found.append(each[1])
        if self._since != before:
            self._save()
        return found

    def _load(self) -> dict[tuple[str, str], float]:
        try:
            found = json.loads(self._folder.read(NAME) or b"{}")
            return {
                (root, name): float(since) for root, files in found.items() for name, since in files.items()
            }
        except (ValueError, TypeError, AttributeError):
            return {}

    def _save(self) -> None:
        found: dict[str, dict[str, float]] = {}
        for (root, name), since in sorted(self._since.items()):
            found.setdefault(root, {})[name] = since
        self._folder.replace(NAME, json.dumps(found).encode())
