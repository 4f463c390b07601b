"""What a real Prometheus makes of the metrics of a running overlay, of the dashboard and of the alerts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.archiving import archiving
from tests.deploy.alert_cases import CASES
from tests.deploy.prometheus import DEPLOY, IS_THERE, RULES, WHY_NOT, promtool, watching
from tests.live_node import OverlayNodes, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_THERE, reason=WHY_NOT)]


def expressions(node: Any) -> Iterator[str]:
    """Every expression of a dashboard."""
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            yield node["expr"]
        for each in node.values():
            yield from expressions(each)
    elif isinstance(node, list):
        for each in node:
            yield from expressions(each)


def of_dashboard(part: str) -> list[str]:
    """The expressions of a part of the dashboard with what Grafana would put in for its variables."""
    dashboard = json.loads((DEPLOY / "grafana" / "tidemark.json").read_text())
    found = [
        each.replace("$__rate_interval", "1m").replace("$broker", ".*")
        for each in expressions(dashboard[part])
    ]
    assert found
    assert not [each for each in found if "$" in each]
    return found


def test_the_pages_keep_the_naming_conventions(tmp_path: Path) -> None:
    with live_node(tmp_path) as node, sync.connect(node.url) as tm:
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", durable="s"):
            tm.publish("t", {"n": 1})
        for page in ("/metrics", "/metrics/subscriptions"):
            assert promtool("check", "metrics", said=node.metrics(page)) == ""


def test_the_configuration_and_the_rules_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def test_every_alert_fires_when_its_cause_has_lasted_and_not_before(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules["groups"][0]["rules"]}
    assert severities.keys() == CASES.keys()
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]  # promtool would compare their texts
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "alert_rule_test": [
                {"eval_time": case.not_yet, "alertname": alert, "exp_alerts": []},
                {
                    "eval_time": case.fires,
                    "alertname": alert,
                    "exp_alerts": [
                        {"exp_labels": {"instance": "b", "severity": severities[alert], **case.labels}}
                    ],
                },
            ],
        }
        for alert, case in CASES.items()
    ]
    plan = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "plan.yml").write_text(yaml.safe_dump(plan))
    promtool("test", "rules", str(tmp_path / "plan.yml"))


def test_a_prometheus_that_scrapes_an_overlay_has_data_for_all_of_the_dashboard_and_its_alerts_fire(
    tmp_path: Path,
) -> None:
    nodes = OverlayNodes(tmp_path, "east", "west", **{"retention.archive": "true"})
    try:
        east, west = nodes.http_address("east"), nodes.http_address("west")
        with (
            ExitStack() as started,
            watching(tmp_path, [east, west]) as prometheus,
            sync.connect(nodes.url("east")) as publisher,
            sync.connect(nodes.url("west")) as reader,
        ):
            publisher.create_topic("t", "[n: int]")
            with reader.subscribe("t", durable="away") as sub:
                eventually(lambda: {"east", "west"} <= set(sub.checkpoint))
            with reader.subscribe("t", where="n > 0") as sub:
                eventually(lambda: {"east", "west"} <= set(sub.checkpoint))
                publisher.publish("t", {"n": 1})
                assert sub.next(PATIENCE_SECONDS) is not None
            eventually(lambda: len(prometheus.query("tidemark_events_delivered_total > 0")) == 1)
            eventually(lambda: prometheus.query('tidemark_lag_events{subscription="away"} == 1'))
            delivered = prometheus.query("sum by (instance) (tidemark_delivery_latency_seconds_count) > 0")
            assert [each["metric"]["instance"] for each in delivered] == [west]
            # The archive's panels have what a real archive reports, and what brokers know of how far it is.
            started.enter_context(archiving([nodes.url("east"), nodes.url("west")], tmp_path / "archive"))
            eventually(lambda: prometheus.query('tidemark_archive_engine{engine="light"} == 1'))
            eventually(lambda: prometheus.query("tidemark_archive_events_total == 1"))
            eventually(lambda: prometheus.query("max(tidemark_archive_lag_seconds) == 0"))
            for expression in of_dashboard("panels"):
                eventually(lambda expression=expression: prometheus.query(expression))  # type: ignore[misc]
            for expression in of_dashboard("annotations"):
                prometheus.query(expression)  # nothing has started again, so there is nothing to note
            eventually(lambda: prometheus.healths() == ["ok"] * len(CASES))
            causes = {("TidemarkLinkDown", east), ("TidemarkBrokerDown", west)}
            eventually(lambda: not causes & prometheus.firing())
            nodes.stop("west")
            eventually(lambda: causes <= prometheus.firing())
    finally:
        nodes.close()
