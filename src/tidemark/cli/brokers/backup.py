"""Commands for backups: make one of a running broker, and put one back."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit
from tidemark.errors import ConfigError
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.admin.backups.copying import Progress


def _size(text: str) -> int:
    """Return the bytes of a size as people write it: 20MB, 512KiB."""
    from tidemark.node.config.units import parse_size

    try:
        return parse_size(text)
    except ConfigError as error:
        raise click.BadParameter(error.reason) from None


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Remove older backups but the newest N.")
@click.option("--rate", type=_size, metavar="SIZE", help="Read no more than this in a second, as in 20MB.")
@BROKER
@JSON
def backup(directory: Path, keep: int | None, rate: int | None, url: str, as_json: bool) -> None:
    """Make a backup of a running broker in DIRECTORY, beside earlier backups of the same broker.

    Publishers and subscribers go on meanwhile. The broker may be on another machine: everything comes over
    the connection. What an earlier backup there has already is not copied again. Every file is checked as it
    was read and as it was written; a backup that was interrupted is never taken for a whole one, and the next
    one goes on with its files. See docs/howto/backup.md for what a backup has, and `tidemark restore`.

    \b
    tidemark backup /mnt/backups/east
    tidemark backup /mnt/backups/east --keep 7 --rate 20MB --broker tidemark://10.0.0.1:7676
    tidemark backup /mnt/backups/east --json
    """
    from tidemark.admin.backups.make import back_up

    with _Line(as_json) as line:
        made = back_up(url, directory, keep=keep, rate=rate, report=line)
    if as_json:
        emit(made)
        return
    click.echo(
        f"backup of {visible(made.broker)} at {_time(made.taken)}: {made.files} files, {made.bytes:,} bytes, "
        f"{made.reused_bytes:,} of them from an earlier backup\n  {made.backup}"
    )
    for each in made.removed:
        click.echo(f"  removed {each}")
    _warn(made.damage)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the broker starts.")
@click.option("--check", "is_check", is_flag=True, help="Only read the backup, and say whether it is whole.")
@click.option(
    "--ahead",
    type=duration,
    default="1m",
    show_default=True,
    help="How far the clock of the lost machine may have been ahead of this one's.",
)
@JSON
def restore(directory: Path, data_dir: Path | None, is_check: bool, ahead: float, as_json: bool) -> None:
    """Make a data directory of a backup: DIRECTORY is one backup, or has several, of which the newest counts.

    The broker that is started with it goes on as a later life of the one that was lost: what that one did
    after the backup is told as a gap to whoever needs it. The lost broker must never be started again.

    \b
    tidemark restore /mnt/backups/east --data-dir /var/lib/tidemark
    tidemark restore /mnt/backups/east --check
    """
    from tidemark.admin.backups.restore import check_backup, restore_backup

    if is_check == (data_dir is not None):
        raise click.UsageError("say where to: --data-dir DIR; or only --check the backup")
    with _Line(as_json) as line:
        if data_dir is None:
            done = check_backup(directory, line)
        else:
            done = restore_backup(directory, data_dir, ahead=ahead, report=line)
    if as_json:
        emit(done)
        return
    what = (
        f"backup of {visible(done.broker)} at {_time(done.taken)}: {done.files} files, {done.bytes:,} bytes"
    )
    if data_dir is None:
        click.echo(f"{what}, whole\n  {done.backup}")
    else:
        click.echo(
            f"{what}, restored\n  {data_dir}\n"
            "start it under its old name; what the lost broker did after the backup will be told as a gap.\n"
            "The lost broker must never be started again."
        )
    _warn(done.damage)


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")


def _warn(damage: tuple[str, ...]) -> None:
    for each in damage:
        click.echo(f"damaged at the broker when the backup was made: {visible(each)}", err=True)


class _Line:
    """Progress on one line of the terminal; nothing where the output is no terminal, or is JSON."""

    def __init__(self, as_json: bool) -> None:
        self._is_shown = sys.stderr.isatty() and not as_json

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def __call__(self, progress: Progress) -> None:
        """Draw the line anew."""
        if self._is_shown and progress.bytes_all:
            percent = 100 * progress.bytes // progress.bytes_all
            text = f"{percent:3} %  {progress.file} of {progress.files}  {visible(progress.name)}"
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
