"""Commands about topics: declare and remove them, list them, see their fields and versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from tidemark.admin import TOPICS, TopicDemand, TopicStatus, ask, connect, topic_demand
from tidemark.cli.options import BROKER, JSON
from tidemark.cli.output import emit, emit_either, table, visible_values
from tidemark.errors import RefusedError
from tidemark.message.visible import visible_lines

if TYPE_CHECKING:
    from tidemark.message.schema import Schema
    from tidemark.message.show import FieldDescription
    from tidemark.sync import Client


#: What is meant as the name of a file: a schema has brackets or braces.
_NAMES_A_FILE = re.compile(r"[^\[\]{}()*?:|]+[./\\][^\[\]{}()*?:|]+")


class CreatedTopic(TypedDict):
    """What `topic create --json` prints."""

    topic: str
    open: bool
    schema: str | None


class RemovedTopic(TypedDict):
    """What `topic rm --json` prints."""

    topic: str
    removed: bool
    #: the durable subscriptions that wanted it, and the events that they are owed; None if the user may not
    #: know
    subscriptions: list[str] | None
    owed_events: int | None


class ShownVersion(TypedDict):
    """A version of the schema of a topic, as `tidemark.message.show` describes it."""

    text: str
    fingerprint: str
    natural: str
    fields: list[FieldDescription]


class ShownTopic(TypedDict):
    """What `topic show --json` prints."""

    topic: str
    open: bool
    #: the oldest first
    versions: list[ShownVersion]


@click.group()
def topic() -> None:
    """Declare and remove topics, and look at them."""


@topic.command("create")
@click.argument("name")
@click.option("--schema", "given", metavar="TEXT|FILE", help="The fields of its events; *.json: JSON Schema.")
@click.option("--open", "is_open", is_flag=True, help="Its events may have any fields.")
@BROKER
@JSON
def topic_create(name: str, given: str | None, is_open: bool, url: str, as_json: bool) -> None:
    """Declare a topic, or a new version of its schema. Declaring it again changes nothing.

    \b
    tidemark topic create trades --schema "[symbol: string, price: double, qty: int]"
    tidemark topic create trades --schema trades.schema
    tidemark topic create anything --open
    tidemark topic create anything --open --schema "[n: int]"   # events like this will come, and others
    """
    if given is None and not is_open:
        raise click.UsageError("say what its events look like: --schema TEXT|FILE, or --open for any fields")
    schema = None if given is None else read_schema(given)
    with connect(url) as tm:
        tm.create_topic(name, schema, is_open=is_open)
    done: CreatedTopic = {"topic": name, "open": is_open, "schema": None if schema is None else schema.text}
    emit_either(done, _render_created, as_json)


def _render_created(done: CreatedTopic) -> str:
    said = ["open to any fields"] if done["open"] else []
    said += [done["schema"]] if done["schema"] else []
    return f"{done['topic']}: {', '.join(said)}"


@topic.command("list")
@BROKER
@JSON
def topic_list(url: str, as_json: bool) -> None:
    """List the topics that the broker knows.

    \b
    tidemark topic list
    tidemark topic list --json | jq -r .topic
    """
    found = [each for each in ask(url, TOPICS) if not each.is_removed]
    if as_json:
        for each in found:
            emit({"topic": each.topic, "open": each.open, "versions": len(each.schemas)})
        return
    if not found:
        click.echo("no topics yet: tidemark topic create NAME --schema ..., or just publish")
        return
    rows = [
        (
            each.topic,
            "open" if each.open else "declared",
            str(len(each.schemas)),
            each.schemas[-1] if each.schemas else "",
        )
        for each in visible_values(found)
    ]
    click.echo(table(("topic", "kind", "versions", "newest"), rows, right=[2]))


@topic.command("show")
@click.argument("name")
@BROKER
@JSON
def topic_show(name: str, url: str, as_json: bool) -> None:
    """Show a topic: its fields, and every version of its schema (of an open topic, every shape).

    \b
    tidemark topic show trades
    """
    # Of several creations of a topic the last is the newest.
    found = next((each for each in reversed(ask(url, TOPICS)) if each.topic == name), None)
    if found is None or found.is_removed:
        what = "knows no topic" if found is None else "has removed the topic"
        raise click.ClickException(f"the broker {what} {name!r}: see `tidemark topic list`, or create it")
    emit_either(_described(found), _render, as_json)


@topic.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@BROKER
@JSON
def topic_rm(name: str, yes: bool, url: str, as_json: bool) -> None:
    """Remove a topic: nothing can be published to it until it is created again, with any schema.

    Events that were published before stay, with the schema they have: subscriptions get what they are owed,
    and retention and the archive hold the rest as before.

    \b
    tidemark topic rm trades
    tidemark topic rm trades --yes
    """
    with connect(url) as tm:
        if not any(each.topic == name and not each.is_removed for each in tm.ask(TOPICS)):
            raise click.ClickException(f"the broker knows no topic {name!r}: see `tidemark topic list`")
        demand = _demand(tm, name, url)
        if not yes:
            click.echo(_consequences(name, demand), err=True)
            click.confirm("Remove it?", abort=True, err=True)
        tm.remove_topic(name)
    wanting = None if demand is None else list(demand.subscriptions)
    owed = None if demand is None else demand.owed_events
    done: RemovedTopic = {"topic": name, "removed": True, "subscriptions": wanting, "owed_events": owed}
    emit_either(done, lambda done: f"removed {done['topic']}", as_json)


def _demand(tm: Client, name: str, url: str) -> TopicDemand | None:
    """What wants a topic at all brokers; None if the user may not monitor, and so may not know."""
    try:
        return topic_demand(tm, name, like=url)
    except RefusedError:
        return None


def _consequences(name: str, demand: TopicDemand | None) -> str:
    """What will happen when a topic is removed."""
    lines = [f"Nothing can be published to {name!r} until it is created again."]
    if demand is not None and demand.subscriptions:
        names = demand.subscriptions
        which = f"{len(names)} durable subscription{'' if len(names) == 1 else 's'} of it"
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        verb, owed = "is" if len(names) == 1 else "are", demand.owed_events
        events = "1 event, which is" if owed == 1 else f"{owed:,} events, which are"
        lines.append(f"{which} ({shown}) {verb} owed {events} still delivered.")
    elif demand is not None:
        lines.append("No durable subscription wants it.")
    lines.append("Events of it that are held or archived stay readable, and go as retention lets them go.")
    return visible_lines("\n".join(lines))


def read_schema(given: str) -> Schema:
    """Return the schema that a text, or a file of that name, has; SchemaError if it is none.

    UsageError if the text looks like the name of a file that is not there.
    """
    from tidemark.message.foreign.json.schema import from_json_schema
    from tidemark.message.schema import Schema

    file = Path(given)
    if not _is_file(file):
        if _NAMES_A_FILE.fullmatch(given):
            raise click.UsageError(
                f"there is no file {given!r}: name a file that exists, or write the schema itself, "
                "like '[symbol: string, price: double]'"
            )
        return Schema.parse(given)
    text = file.read_text()
    return Schema(*from_json_schema(json.loads(text))) if file.suffix == ".json" else Schema.parse(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a schema can be too long for a file's name
        return False


def _described(found: TopicStatus) -> ShownTopic:
    """A topic with the fields of each version of its schema, the oldest first."""
    from tidemark.message.schema import Schema
    from tidemark.message.show import describe

    versions: list[ShownVersion] = []
    for text in found.schemas:
        schema = describe(Schema.parse(text))
        versions.append(
            {
                "text": schema["text"],
                "fingerprint": schema["fingerprint"],
                "natural": schema["natural"],
                "fields": schema["fields"],
            }
        )
    return {"topic": found.topic, "open": found.open, "versions": versions}


def _render(topic: ShownTopic) -> str:
    kind, word = ("open", "shape") if topic["open"] else ("declared", "version")
    count = len(topic["versions"])
    parts = [f"{click.style(topic['topic'], bold=True)}: {kind}, {count} {word}{'' if count == 1 else 's'}"]
    for number, version in enumerate(topic["versions"], start=1):
        rows = [
            (field["path"], field["type"], "optional" if field["optional"] else "")
            for field in version["fields"]
        ]
        title = f"{word} {number}  {version['fingerprint']}  {version['text']}"
        parts.append(f"{title}\n{table(('field', 'type', ''), rows)}")
    return "\n\n".join(parts)
