"""The command that runs the console and the HTTP door."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tidemark.cli.options import BROKER, FILE, JSON
from tidemark.cli.output import emit

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:7678", show_default=True, help="Where it is."
)
@click.option("--certificate", type=FILE, help="PEM file of its certificate: it speaks HTTPS then.")
@click.option("--key", type=FILE, help="PEM file of the certificate's key.")
@click.option("--name", "names", metavar="HOST", multiple=True, help="Another name that it is reached under.")
@click.option(
    "--origin", "origins", metavar="URL", multiple=True, help="A site whose pages may use the HTTP door."
)
@click.option("--pages", type=DIRECTORY, help="Serve your own pages of this directory under /pages/.")
@click.option("--reports", type=DIRECTORY, help="Show the pages of pipeline report and audit in there.")
@click.option("--attached", is_flag=True, hidden=True, help="End when standard input is closed.")
@BROKER
@JSON
def console(
    listen: str,
    certificate: Path | None,
    key: Path | None,
    names: tuple[str, ...],
    origins: tuple[str, ...],
    pages: Path | None,
    reports: Path | None,
    attached: bool,
    url: str,
    as_json: bool,
) -> None:
    """Show brokers in a browser, and let programs publish and subscribe over HTTP. Ctrl-C stops.

    It is a client of the brokers like any other. With --json it prints one object when it is ready: url.
    Reached from other machines, it wants a login for everything.

    \b
    tidemark console
    tidemark console --broker tidemark://10.0.0.1:7676,10.0.0.2:7676 --listen 127.0.0.1:8080
    tidemark console --listen 0.0.0.0:7678 --certificate console.pem --key console.key --name ops.example
    curl -d '{"symbol": "ACME", "price": 10.5}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:7678/topics/trades/events
    curl -N 'http://127.0.0.1:7678/topics/trades/events?where=price>10'
    """
    from tidemark.console.options import ConsoleOptions
    from tidemark.console.serving import run_console
    from tidemark.node.config.units import parse_address
    from tidemark.node.process.parent import end_with_input

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    address = parse_address(listen)
    options = ConsoleOptions(
        url=url,
        host=address.host,
        port=address.port,
        certificate=None if certificate is None else str(certificate),
        key=None if key is None else str(key),
        origins=origins,
        names=names,
        pages=pages,
        reports=reports,
    )

    def ready(where: str) -> None:
        if as_json:
            emit({"url": where})
        else:
            click.echo(
                f"{click.style('the console is up', bold=True)} at {where}\n  broker  {url}\n  stop    Ctrl-C"
            )
        sys.stdout.flush()

    if attached:
        end_with_input()
    run_console(options, ready)
