"""A checkpoint token in a file: read at the start, replaced whole as events are consumed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidemark.ticks import CheckpointToken


class CheckpointFile:
    """Holds one token. A crash leaves the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: CheckpointToken | None = None

    def load(self) -> CheckpointToken | None:
        """The token; None if there is no file yet. TokenError if it holds something else."""
        from tidemark.ticks import CheckpointToken

        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise click.ClickException(f"{self._path} cannot be read: {error.strerror}") from None
        self._saved = CheckpointToken.parse(text.strip())
        return self._saved

    def save(self, token: CheckpointToken) -> bool:
        """Put it on disk; False if it is there already."""
        if token == self._saved:
            return False
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w") as file:
                file.write(f"{token.text()}\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise click.ClickException(f"{self._path} cannot be written: {error.strerror}") from None
        self._saved = token
        return True
