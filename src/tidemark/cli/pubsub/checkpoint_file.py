"""A checkpoint token in a file: read at the start, replaced whole as events are consumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.storage.disk.atomic_file import replace_path

if TYPE_CHECKING:
    from tidemark.ticks import CheckpointToken


class CheckpointFile:
    """A file that holds one token. After a crash it has either the old token or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: CheckpointToken | None = None

    def load(self) -> CheckpointToken | None:
        """Return the token; None if there is no file yet. TokenError if the file holds anything else."""
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
        """Put a token on disk; return False if the file has that token already."""
        if token == self._saved:
            return False
        try:
            replace_path(self._path, f"{token.text()}\n".encode())
        except OSError as error:
            raise click.ClickException(f"{self._path} cannot be written: {error.strerror}") from None
        self._saved = token
        return True
