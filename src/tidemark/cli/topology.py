"""Commands about topologies: draw one, and say what applying one takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click

from tidemark.cli.options import BROKER_DEFAULT, BROKER_VARIABLE, FILE, JSON
from tidemark.cli.output import emit, emit_either, table
from tidemark.cli.talk import ANSWER_SECONDS, connect
from tidemark.cli.tree import describe_file, draw_file, draw_neighbourhood
from tidemark.errors import ClientError

#: Those that are not there are waited for together.
ASKED_AT_A_TIME_MAX = 16


@click.group()
def topology() -> None:
    """Look at topologies."""


@topology.command("show")
@click.argument("file", required=False, type=FILE)
@click.option(
    "--broker",
    "url",
    metavar="URL",
    envvar=BROKER_VARIABLE,
    default=BROKER_DEFAULT,
    show_default=True,
    show_envvar=True,
    help="Without a FILE: a running broker, that shows itself and its neighbours.",
)
@JSON
def topology_show(file: Path | None, url: str, as_json: bool) -> None:
    """Draw the brokers of a topology file as a tree; or what a running broker sees around it.

    \b
    tidemark topology show three.toml
    tidemark topology show --broker tidemark://127.0.0.1:7676
    """
    if file is not None:
        emit_either(describe_file(file), draw_file, as_json)
        return
    with connect(url) as tm:
        status, routes = (tm.ask(what, timeout=ANSWER_SECONDS) for what in ("status", "routes"))
    seen = {"broker": status["broker"], "links": status["links"], "routes": routes}
    emit_either(seen, lambda _: draw_neighbourhood(status, routes), as_json)


@topology.command("apply")
@click.argument("file", type=FILE)
@JSON
def topology_apply(file: Path, as_json: bool) -> None:
    """Check a topology file against the brokers that are running, and say what each one needs.

    Brokers read their topology when they start: nothing is changed here. Exits 0 if every broker runs as the
    file says, 1 if some have to be started or restarted.

    \b
    tidemark topology apply three.toml
    """
    brokers = describe_file(file)["brokers"]
    with ThreadPoolExecutor(ASKED_AT_A_TIME_MAX) as asking:
        needs = list(asking.map(partial(_need, file), brokers))
    if as_json:
        for need in needs:
            emit(need)
    else:
        rows = [(need["broker"], _coloured(need["state"]), need["advice"]) for need in needs]
        click.echo(table(("broker", "state", "what to do"), rows))
    sys.exit(0 if all(need["state"] == "as in the file" for need in needs) else 1)


def _need(file: Path, broker: Mapping[str, Any]) -> dict[str, Any]:
    name = broker["name"]
    command = f"tidemark broker --config {file} --broker {name}"
    try:
        with connect(broker["url"]) as tm:
            status, routes = (tm.ask(what, timeout=ANSWER_SECONDS) for what in ("status", "routes"))
    except ClientError:
        return {"broker": name, "state": "not running", "advice": f"start it: {command}", "differs": []}
    differs = [
        what
        for what, is_same in (
            ("name", status["broker"] == name),
            ("links", set(status["links"]) == set(broker["links"])),
            ("pubends", set(status["pubends"]) == set(broker["pubends"])),
            ("routes", routes == broker["routes"]),
        )
        if not is_same
    ]
    if not differs:
        return {"broker": name, "state": "as in the file", "advice": "", "differs": []}
    advice = f"its {' and '.join(differs)} changed: stop it, then {command}"
    return {"broker": name, "state": "needs a restart", "advice": advice, "differs": differs}


def _coloured(state: str) -> str:
    return click.style(state, fg="green" if state == "as in the file" else "yellow")
