"""Options that commands of the pipeline share."""

from __future__ import annotations

from pathlib import Path

import click

from tidemark.cli.options import BROKER_DEFAULT, BROKER_VARIABLE

#: The directory in which `tidemark up` keeps the archive.
ARCHIVE_DEFAULT = "tidemark-data/archive"

PATH = click.option(
    "--path",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=ARCHIVE_DEFAULT,
    show_default=True,
    envvar="TIDEMARK_ARCHIVE",
    show_envvar=True,
    help="Where the archive is.",
)
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
