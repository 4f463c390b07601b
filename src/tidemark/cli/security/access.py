"""Commands about who may do what: show, plan, apply and try an access document, and make verifiers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from tidemark.access.rule_fit import RuleMisfit
from tidemark.admin import ACCESS, ANSWER_SECONDS, PROPOSE_ACCESS, TOPICS, connect
from tidemark.admin.access_changes import AccessAnswer, Misfit, misfits, plan_access, try_access
from tidemark.cli.options import BROKER, FILE, JSON
from tidemark.cli.output import emit, emit_either, table, visible_values

_VERIFIER = re.compile(r"SCRAM-SHA-256\$[^\"']*")


@click.group()
def access() -> None:
    """Look at, try and change who may do what (docs/security.md)."""


@access.command("show")
@BROKER
@click.option("--with-verifiers", is_flag=True, help="Also print what passwords are checked against.")
@JSON
def access_show(url: str, with_verifiers: bool, as_json: bool) -> None:
    """Print the access document that a broker goes by; the verifiers of passwords are left out.

    \b
    tidemark access show
    tidemark access show --with-verifiers > access.toml
    """
    with connect(url) as client:
        found = client.ask(ACCESS, timeout=ANSWER_SECONDS)
    text = found.text if with_verifiers else _VERIFIER.sub("(set)", found.text)
    if as_json:
        emit({"broker": found.broker, "mode": found.mode, "version": found.version, "text": text})
    elif found.mode == "open":
        click.echo("the broker is open: everybody may do everything")
    else:
        click.echo(text, nl=not text.endswith("\n"))


@access.command("plan")
@click.argument("file", type=FILE, required=False)
@BROKER
@JSON
def access_plan(file: Path | None, url: str, as_json: bool) -> None:
    """Print what a document would change, and which of its rules fit no event of which topics.

    Nothing is changed. Without FILE, the document that is in force is looked at. Exit code 2 if the document
    changes something.

    \b
    tidemark access plan access.toml
    """
    with connect(url) as client:
        found = client.ask(ACCESS, timeout=ANSWER_SECONDS)
        topics = client.ask(TOPICS, timeout=ANSWER_SECONDS)
    text = found.text if file is None else file.read_text()
    changes, wrong = plan_access(found.text, text), misfits(text, topics)
    if as_json:
        emit({"version": found.version, "changes": changes, "misfits": wrong})
    else:
        rows = [(each.change, each.kind, each.name, each.detail) for each in visible_values(changes)]
        click.echo(table(("change", "what", "name", "differs in"), rows) if rows else "nothing changes")
        _warn(wrong)
    sys.exit(2 if changes else 0)


def _warn(wrong: list[Misfit]) -> None:
    """Print which rules do not fit which topics."""
    for each in visible_values(wrong):
        text = RuleMisfit(each.rule, each.topic, each.reason).text
        click.echo(click.style(text, fg="yellow"), err=True)


@access.command("apply")
@click.argument("file", type=FILE)
@click.option("--force", is_flag=True, help="Also if new rules fit no event of topics that exist.")
@BROKER
@JSON
def access_apply(file: Path, force: bool, url: str, as_json: bool) -> None:
    """Put a document into force in the whole overlay; clients that it concerns connect again.

    A broker refuses a document with a new or changed rule that fits no event of a topic that exists, since
    nobody would see or publish anything there by it. With --force it takes it.

    \b
    tidemark access apply access.toml
    """
    text = file.read_text()
    with connect(url) as client:
        found = client.ask(ACCESS, timeout=ANSWER_SECONDS)
        changes = plan_access(found.text, text)
        wrong = misfits(text, client.ask(TOPICS, timeout=ANSWER_SECONDS))
        held = client.ask(PROPOSE_ACCESS, timeout=ANSWER_SECONDS, text=text, base=found.version, force=force)
    if as_json:
        emit({"version": held.version, "changes": changes, "misfits": wrong})
    else:
        click.echo(f"version {held.version} of the access document is in force: {len(changes)} changes")
        _warn(wrong)


@access.command("test")
@click.argument("user")
@click.argument("topic")
@click.option("--where", "selector", metavar="SELECTOR", default="", help="What it would subscribe with.")
@click.option("--claim", "claims", metavar="NAME=VALUE", multiple=True, help="A claim of its bearer token.")
@click.option("--file", type=FILE, help="Try this document; default: the one that the broker goes by.")
@BROKER
@JSON
def access_test(
    user: str, topic: str, selector: str, claims: tuple[str, ...], file: Path | None, url: str, as_json: bool
) -> None:
    """Say what a user may do with a topic or pattern, and what it would see.

    Exit code 1 if it may neither subscribe nor publish.

    \b
    tidemark access test alice trades.eu --where "price > 10"
    tidemark access test alice "trades.>" --file new-access.toml
    """
    if file is not None:
        text = file.read_text()
    else:
        with connect(url) as client:
            text = client.ask(ACCESS, timeout=ANSWER_SECONDS).text
    given: dict[str, object] | None = dict(_claim(each) for each in claims) if claims else None
    found = try_access(text, user, topic, selector, given)
    emit_either(found, _told, as_json)
    sys.exit(0 if found.subscribe or found.publish else 1)


def _claim(text: str) -> tuple[str, object]:
    name, found, value = text.partition("=")
    if not found:
        raise click.BadParameter(f"{text!r} has no '='; write --claim region=eu", param_hint="--claim")
    if value in ("true", "false"):
        return name, value == "true"
    return name, int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value


def _told(found: AccessAnswer) -> str:
    def line(may: bool, what: str, how: str) -> str:
        mark = click.style("may", fg="green") if may else click.style("may not", fg="red")
        return f"{found.user} {mark} {what} {found.pattern}" + (f": {how}" if may and how else "")

    lines = [
        line(found.subscribe, "subscribe to", f"sees {found.sees}" if found.sees else "sees everything"),
        line(found.publish, "publish to", f"if {found.writes}" if found.writes else ""),
        line(found.declare, "declare", ""),
    ]
    if found.named:
        lines.append(f"{found.user} may not name the field {found.named!r} in a selector")
    elif found.hidden:
        lines.append(f"{found.user} does not see the fields {', '.join(found.hidden)}")
    extra = [name for name in ("monitor", "administer", "pipeline") if getattr(found, name)]
    return "\n".join([*lines, *([f"{found.user} also has: {', '.join(extra)}"] if extra else [])])


@access.command("password")
@click.option("--file", type=FILE, help="Read the password from this file; default: it is asked for.")
@JSON
def access_password(file: Path | None, as_json: bool) -> None:
    """Print the verifier of a password, for `password` of a user in the access document.

    \b
    tidemark access password
    tidemark access password --file alice.password
    """
    from tidemark.node.security.login import make_verifier

    if file is not None:
        password = file.read_text().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    verifier = make_verifier(password).text
    if as_json:
        emit({"verifier": verifier})
    else:
        click.echo(verifier)
