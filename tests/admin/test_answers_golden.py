"""The JSON of every answer to an administrator, as it was when each question was first answered.

Programs and brokers of other versions read these texts: keys may be added, and nothing else changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.broker.desk import Desk, batch
from tests.live_node import config_at
from tests.node.speech import Speaker, Stage, play
from tests.ports import free_ports
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.node.config.loading import load
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Answer, Ask, Hello, Publish, Release, ReleaseRow, Subscribe, Topic

SUBSCRIPTION = (
    '{"name": "s", "durable": true, "connected": false, "pattern": "t", "selector": "n > 1", '
    '"changing": false, "credit": 0, "checkpoint": "tm1.AXDA2rTKmjq7Ps9s", "pubends": {"p": '
    '{"start": 1000000100000, "acknowledged": 1000000100000, "told": null, "lag_us": 300000, '
    '"catching_up": false, "recall": null, "owed_events": 3, "owed_bytes": 48, "is_exact": true}}, '
    '"over_quota": false, "gaps": 0, "slow": 0}'
)
PUBENDS = (
    '[{"pubend": "p", "position": 1000000500002, "last_event": 1000000500002, "lost": null, '
    '"released": 1000000100000, "archived": null, "bytes": 124, "publishers": 1}]'
)
OF_A_BROKER = [
    (
        "topics",
        {},
        '[{"topic": "a", "open": true, "schemas": [], "generation": 0}, '
        '{"topic": "t", "open": false, "schemas": ["[n: int]"], "generation": 0}]',
    ),
    ("pubends", {}, PUBENDS),
    ("archived", {"token": CheckpointToken().text()}, PUBENDS),
    ("let_go", {"token": CheckpointToken().text()}, PUBENDS),
    (
        "streams",
        {},
        '[{"pubend": "p", "position": 1000000500002, "delivered": 1000000500002, "synced": 1000000500002, '
        '"lost": -9223372036854775808, "window_bytes": 2792, "upstream": null, "followers": [], '
        '"catching_up": 0}]',
    ),
    ("subscriptions", {}, f"[{SUBSCRIPTION}]"),
    ("subscription", {"name": "s"}, SUBSCRIPTION),
    (
        "seek",
        {"name": "s"},
        SUBSCRIPTION.replace('"acknowledged": 1000000100000', '"acknowledged": 1000000500002')
        .replace('"lag_us": 300000', '"lag_us": 0')
        .replace('"owed_events": 3, "owed_bytes": 48', '"owed_events": 0, "owed_bytes": 0')
        .replace("tm1.AXDA2rTKmjq7Ps9s", "tm1.AXDExOXKmjqMzsxe"),
    ),
    ("remove", {"name": "s"}, '{"removed": "s"}'),
    ("hosts", {}, "[]"),
    (
        "reach",
        {
            "pubend": "p",
            "base": 1000000100000,
            "upto": 1000000500002,
            "pattern": "t",
            "selector": "",
            "events": 2,
        },
        '{"upto": 1000000500001, "events": 2, "is_whole": true}',
    ),
]


def payload(at: Desk, what: str, arguments: dict[str, Any]) -> str:
    (frame,) = at.do(80, Ask(7, what, json.dumps(arguments)))
    assert isinstance(frame, Answer), frame
    return frame.payload


@pytest.mark.parametrize(("what", "arguments", "golden"), OF_A_BROKER, ids=lambda each: str(each)[:12])
def test_a_broker_answers_with_the_same_json_as_ever(
    what: str, arguments: dict[str, Any], golden: str
) -> None:
    at = Desk()
    at.declare()
    at.pass_time(0.2)
    at.finish(at.say(1, Subscribe("s", "t", "n > 1", True, 10_000)))
    at.pass_time(0.3)
    at.finish(at.say(50, Publish("p", "me", 1, batch(0, 1, 2, values=(2, 3, 4)))))
    at.pass_time(0.3)
    at.gone(1)
    if what == "topics":
        at.do(1, Topic("a", True, ()))
    assert payload(at, what, arguments) == golden


def test_a_broker_that_is_archived_says_how_far_the_archive_has_got() -> None:
    at = Desk(pubend_policy=PubendPolicy(archive=True))
    at.declare()
    at.pass_time(0.2)
    (pubend,) = json.loads(payload(at, "pubends", {}))
    golden = json.dumps([pubend | {"archived": pubend["position"]}])
    assert payload(at, "archived", {"token": CheckpointToken({"p": pubend["position"]}).text()}) == golden


def test_the_brokers_that_a_pubend_waits_for_are_listed_and_forgotten() -> None:
    at = Desk(downstream=("d",))
    at.link("d")
    at.hear("d", Hello("d", 1))
    at.finish(at.hear("d", Release("p", (ReleaseRow("d", 1, 500, 600, True),))))
    hosts = '[{"pubend": "p", "host": "d", "released": 500, "is_known": true}]'
    assert payload(at, "hosts", {}) == hosts
    assert payload(at, "forget_host", {"host": "d"}) == '{"removed": "d", "pubends": ["p"]}'


async def heard(client: Speaker, what: str, **arguments: Any) -> str:
    await client.say(Ask(1, what, json.dumps(arguments)))
    return (await client.hear(Answer)).payload


def changing(text: str, **values: object) -> str:
    """The JSON object with other values for some keys, of which it has to have each."""
    found = json.loads(text)
    assert values.keys() <= found.keys()
    return json.dumps(found | values)


def test_a_node_answers_with_the_same_json_as_ever(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node(config_at(tmp_path / "data", retention__archive="true"))
        client = await stage.client(node, "admin")
        status = changing(
            await heard(client, "status"),
            version="1.2.3",
            started=5.5,
            uptime_seconds=0.5,
            listen="127.0.0.1:1",
            http="127.0.0.1:2",
            data_dir="data",
            disk_busy_seconds=0.25,
            disk_free_bytes=3,
        )
        assert status == (
            '{"broker": "tidemark", "version": "1.2.3", "incarnation": 1, "state": "running", '
            '"draining": false, "overlay": 0, "started": 5.5, "uptime_seconds": 0.5, '
            '"listen": "127.0.0.1:1", "http": "127.0.0.1:2", "data_dir": "data", "durability": "sync", '
            '"links": {}, "pubends": ["main"], "alarms": [], "clients": 1, "parked": 0, "connections": 1, '
            '"links_up": 0, "links_wanted": 0, "queued_bytes": 0, "disk_backlog_bytes": 0, '
            '"disk_busy_seconds": 0.25, "disk_free_bytes": 3, "recalls_waiting": 0, "pipelines": 0}'
        )
        (connection,) = json.loads(await heard(client, "connections"))
        assert changing(json.dumps(connection), seconds=0.5, silent_seconds=0.25) == (
            '{"client": 1, "peer": null, "name": "admin", "address": "127.0.0.1", "seconds": 0.5, '
            '"silent_seconds": 0.25, "queued_bytes": 0, "is_paused": false}'
        )
        metrics = json.loads(await heard(client, "metrics"))
        assert list(metrics)[:2] == ["events_published", "publishes_repeated"]
        before = [name for name in metrics if not name.startswith("delivered_within_")]
        assert before[-4:] == ["recalls_waiting", "pipelines", "alarms", "incarnation"]
        assert all(isinstance(value, int | float) for value in metrics.values())
        config = await heard(client, "config")
        assert config.startswith(
            '[{"key": "broker.name", "value": "\\"tidemark\\"", "source": "default"}, '
            '{"key": "broker.listen", "value": "\\"127.0.0.1:0\\"", "source": "--listen"}, '
        )
        assert await heard(client, "routes") == '[{"pubend": "main", "upstream": null, "followers": []}]'
        assert await heard(client, "links") == "[]"
        assert await heard(client, "archive") == json.dumps([str(tmp_path / "data" / "archive")])

    play(story)


def test_a_node_of_an_overlay_answers_with_the_same_json_as_ever(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        root_port, leaf_port = free_ports(2)
        file = tmp_path / "topology.toml"
        file.write_text(
            f'[brokers.root]\nlisten = "127.0.0.1:{root_port}"\npubends = ["main"]\n'
            f'[brokers.leaf]\nlisten = "127.0.0.1:{leaf_port}"\nparent = "root"\n'
        )
        node = await stage.node(load(file, broker="root", options={"storage.data_dir": str(tmp_path / "d")}))
        client = await stage.client(node)
        assert await heard(client, "links") == (
            '[{"peer": "leaf", "is_up": false, "is_local": false, "seconds": null, "bytes": 0, "events": 0, '
            '"queued_bytes": 0, "condition": {"grade": 0, "deaths": 0, "damped_seconds": null, '
            '"delay_seconds": null, "rate": null}, "sent": {}, "version": null}]'
        )
        overlay = await heard(client, "overlay")
        assert list(json.loads(overlay)) == ["broker", "version", "digest", "text"]
        text = json.loads(overlay)["text"]
        proposed = json.loads(await heard(client, "propose", text=text, base=0))
        assert list(proposed) == ["broker", "version", "digest", "text"]
        assert json.loads(await heard(client, "status"))["links"] == {"leaf": False}

    play(story)
