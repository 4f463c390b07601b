"""Options that commands of the pipeline share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from tidemark.cli.options import BROKER_DEFAULT, BROKER_VARIABLE

#: The directory in which `tidemark up` keeps the archive.
ARCHIVE_DEFAULT = "tidemark-data/archive"

_PATH = click.option(
    "--path",
    metavar="DIR|URL",
    default=ARCHIVE_DEFAULT,
    show_default=True,
    envvar="TIDEMARK_ARCHIVE",
    show_envvar=True,
    help="Where the archive is: a directory, or a folder like s3://bucket/archive.",
)
_STORAGE_OPTIONS = click.option(
    "--storage-options",
    metavar="FILE",
    envvar="TIDEMARK_STORAGE_OPTIONS",
    show_envvar=True,
    help="A TOML file with credentials and endpoint of an object store; by default the environment has them.",
)


def PATH(command: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802
    """Options that say where the archive is; the command gets it as a folder, `path`."""

    @wraps(command)
    def run(*args: Any, path: str, storage_options: str | None, **options: Any) -> Any:
        from tidemark.spark.locations import folder_at
        from tidemark.spark.stores.storage_options import load_storage_options

        given = None if storage_options is None else load_storage_options(storage_options)
        return command(*args, path=folder_at(path, given), **options)

    return _PATH(_STORAGE_OPTIONS(run))


BROKERS = click.option(
    "--broker",
    "urls",
    metavar="URL",
    multiple=True,
    envvar=BROKER_VARIABLE,
    default=[BROKER_DEFAULT],
    show_default=True,
    show_envvar=True,
    help="A broker that hosts pubends; once for each, if there are several.",
)
MASTER = click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
