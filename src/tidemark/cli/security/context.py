"""Commands about contexts: which broker, as which user, under one name."""

from __future__ import annotations

import os

import click

from tidemark.admin.contexts import VARIABLE, Context, directory, find_context, load_contexts, save_contexts
from tidemark.cli.options import JSON
from tidemark.cli.output import emit, table, visible_values


@click.group()
def context() -> None:
    """Keep how to reach brokers, and as whom, under a name: `tidemark --context NAME ...`."""


@context.command("add")
@click.argument("name")
@click.option("--url", required=True, metavar="URL", help="tidemark+tls://host:port, or without TLS.")
@click.option("--user", default="", help="The user to log in as.")
@click.option("--password-file", default="", help="A file with its password; default: it is asked for.")
@click.option("--token-file", default="", help="A file with a bearer token.")
@click.option("--ca", default="", help="The authority that signs the broker's certificate, in PEM.")
@click.option("--certificate", default="", help="Your own certificate, in PEM.")
@click.option("--key", default="", help="Its key, in PEM.")
@JSON
def context_add(
    name: str,
    url: str,
    user: str,
    password_file: str,
    token_file: str,
    ca: str,
    certificate: str,
    key: str,
    as_json: bool,
) -> None:
    """Add a context, or replace the one of this name.

    A password that is asked for is kept in a file that only you can read.

    \b
    tidemark context add prod --url tidemark+tls://broker.example:7676 --user alice --ca ca.pem
    tidemark --context prod sub trades
    """
    from tidemark.client.connecting.addresses import parse_url

    _check_name(name)
    parse_url(url)
    if user and not password_file and not certificate:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
        password_file = _kept(name, password)
    files = [
        os.path.abspath(each) if each else "" for each in (password_file, token_file, ca, certificate, key)
    ]
    made = Context(url, user, *files)
    path = save_contexts({**load_contexts(), name: made})
    if as_json:
        emit({"context": name, "file": str(path)})
    else:
        click.echo(f"{name} is in {path}: use it with --context {name}, or {VARIABLE}={name}")


@context.command("list")
@JSON
def context_list(as_json: bool) -> None:
    """Print all contexts.

    \b
    tidemark context list
    """
    found = load_contexts()
    if as_json:
        emit(found)
        return
    rows = [(name, each.url, each.user) for name, each in sorted(visible_values(found).items())]
    click.echo(table(("context", "url", "user"), rows))


@context.command("rm")
@click.argument("name")
@JSON
def context_rm(name: str, as_json: bool) -> None:
    """Remove a context; files that it names stay, but for a password that was asked for.

    \b
    tidemark context rm prod
    """
    find_context(name)
    _check_name(name)
    save_contexts({each: made for each, made in load_contexts().items() if each != name})
    (directory() / f"{name}.password").unlink(missing_ok=True)
    if as_json:
        emit({"removed": name})
    else:
        click.echo(f"{name} is gone")


def _check_name(name: str) -> None:
    """Raise BadParameter unless the name can be that of a file of its own: it may not lead to another one."""
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise click.BadParameter(f"{name!r}: use letters, digits, `-`, `_` and `.`", param_hint="NAME")


def _kept(name: str, password: str) -> str:
    """Write a password into a file of its own, which only its owner can read. Returns the file."""
    path = directory() / f"{name}.password"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    os.fchmod(handle, 0o600)  # one that was there may have been for others too
    with os.fdopen(handle, "w") as file:
        file.write(password + "\n")
    return str(path)
