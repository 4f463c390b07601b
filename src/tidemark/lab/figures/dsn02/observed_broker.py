"""A broker process that writes down what it nacks, and some of whose links can be made to fail.

`python -m tidemark.lab.figures.dsn02.observed_broker DIRECTORY broker ...` appends a line for each range of
each nack that the broker sends to `DIRECTORY/NAME.nacks`. While there is a file `DIRECTORY/A-B.link`, nothing
passes on the link between the brokers A and B, in either direction; if the file says `down`, the connection
is closed too, and no other is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import time
from typing import Any

from tidemark.lab.processes.client_processes import main
from tidemark.node.connection import Connection
from tidemark.wire.frames import Nack
from tidemark.wire.peer_layouts import singly

STALLED, DOWN = "stalled", "down"


def link_file(directory: Path, a: str, b: str) -> Path:
    """Returns the file that says what is wrong with a link."""
    return directory / f"{min(a, b)}-{max(a, b)}.link"


def nacks_file(directory: Path, broker: str) -> Path:
    """Returns the file with the nacks of a broker."""
    return directory / f"{broker}.nacks"


def observe(directory: Path) -> None:
    """Change the connections of this process."""
    received, send, write = Connection.received, Connection.send, Connection.write

    def blocked(connection: Any) -> bool:
        """Whether nothing may pass; closes the connection where the link is down."""
        peer = connection.peer or connection.expected
        if peer is None:
            return False
        try:
            state = link_file(directory, connection._server.name, peer).read_text()
        except FileNotFoundError:
            return False
        if state == DOWN:
            connection.abort()
        return True

    def on_received(self: Any, data: Any) -> None:
        if not blocked(self):
            received(self, data)

    def on_send(self: Any, frame: Any) -> None:
        if self.peer is not None:
            if blocked(self):
                return
            nacks = [each for each in singly(frame) if isinstance(each, Nack)]
            if nacks:
                _note(nacks_file(directory, self._server.name), self.peer, nacks)
        send(self, frame)

    def on_write(self: Any, frame: Any) -> None:
        if not blocked(self):
            write(self, frame)

    Connection.received = on_received  # type: ignore[method-assign]  # a hook
    Connection.send = on_send  # type: ignore[method-assign]  # a hook
    Connection.write = on_write  # type: ignore[method-assign]  # a hook


def _note(path: Path, to: str, nacks: list[Nack]) -> None:
    with path.open("a") as file:
        for nack in nacks:
            for base, upto in nack.ranges:
                file.write(json.dumps([time(), to, nack.pubend, base, upto]) + "\n")


if __name__ == "__main__":
    observe(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
