"""Commands about certificates: an authority for an overlay of one's own, and certificates that it signs."""

from __future__ import annotations

from pathlib import Path

import click

from tidemark.cli.options import FILE, JSON
from tidemark.cli.output import emit, emit_either, visible_values

DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tidemark-certificates"),
    show_default=True,
    help="Where the files are.",
)


@click.group()
def cert() -> None:
    """Make and look at certificates, for overlays without an authority of their own."""


@cert.command("ca")
@DIRECTORY
@click.option("--name", default="Tidemark authority", show_default=True, help="What it is called.")
@JSON
def cert_ca(directory: Path, name: str, as_json: bool) -> None:
    """Make an authority: ca.pem, which everybody gets, and ca.key, which nobody else may see.

    \b
    tidemark cert ca
    """
    from tidemark.node.security.certificates import make_authority

    make_authority(name).save(directory / "ca.pem", directory / "ca.key")
    _told({"certificate": str(directory / "ca.pem"), "key": str(directory / "ca.key")}, as_json)


@cert.command("issue")
@click.argument("name")
@DIRECTORY
@click.option("--broker", "is_broker", is_flag=True, help="NAME is a broker of the overlay.")
@click.option("--user", "is_user", is_flag=True, help="NAME is a user of the access document.")
@click.option("--host", "hosts", multiple=True, help="A host or address where the broker is reached.")
@click.option(
    "--days", type=click.IntRange(1, 3_650), default=365, show_default=True, help="How long it holds."
)
@JSON
def cert_issue(
    name: str,
    directory: Path,
    is_broker: bool,
    is_user: bool,
    hosts: tuple[str, ...],
    days: int,
    as_json: bool,
) -> None:
    """Issue a certificate for a broker, with the hosts where it is reached, or for a user.

    \b
    tidemark cert issue east --broker --host east.example --host 10.0.0.1
    tidemark cert issue alice --user
    """
    from tidemark.node.security.certificates import Issued, issue

    if is_broker == is_user:
        raise click.UsageError("say for whom it is: --broker or --user")
    if is_broker and not hosts:
        raise click.UsageError("a broker's certificate names its hosts: add --host")
    for needed in ("ca.pem", "ca.key"):
        if not (directory / needed).exists():
            raise click.UsageError(f"there is no authority in {directory}: `tidemark cert ca` makes one")
    authority = Issued((directory / "ca.pem").read_bytes(), (directory / "ca.key").read_bytes())
    made = issue(
        authority,
        name,
        hosts=hosts,
        broker=name if is_broker else "",
        user=name if is_user else "",
        days=days,
    )
    made.save(directory / f"{name}.pem", directory / f"{name}.key")
    _told({"certificate": str(directory / f"{name}.pem"), "key": str(directory / f"{name}.key")}, as_json)


@cert.command("show")
@click.argument("file", type=FILE)
@JSON
def cert_show(file: Path, as_json: bool) -> None:
    """Print what a certificate says: its names, who signed it, and how long it holds.

    \b
    tidemark cert show tidemark-certificates/east.pem
    """
    from tidemark.node.security.certificates import describe

    found = describe(file.read_bytes())
    emit_either(found, lambda each: "\n".join(f"{key:<11} {value}" for key, value in each.items()), as_json)


def _told(paths: dict[str, str], as_json: bool) -> None:
    if as_json:
        emit(paths)
    else:
        for what, path in visible_values(paths).items():
            click.echo(f"{what:<11} {path}")
