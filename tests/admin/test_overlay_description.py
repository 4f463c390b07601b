"""An overlay described: of its file alone, and with what its brokers report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.admin.samples import OVERLAY, REPORTS, report
from tidemark.admin import describe_overlay
from tidemark.admin.overlay_description import LinkActivity
from tidemark.admin.topology_changes import apply_step, plan_change
from tidemark.errors import OverlayChangeError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.plan import Step
from tidemark.wire.answers import LinkCondition

TOPOLOGY = parse_topology(OVERLAY, 2)


def test_a_file_is_described_without_states_and_rates() -> None:
    described = describe_overlay(TOPOLOGY, source="overlay.toml")
    assert not described.is_live
    found = described.to_json()
    assert found["topology"] == "overlay.toml"
    assert found["version"] == 2
    assert found["brokers"][1] == {
        "name": "e2",
        "cell": "east",
        "url": "tidemark://127.0.0.1:7002",
        "pubends": [],
        "draining": True,
        "links": ["e1", "w1"],
    }
    assert [(each["name"], each["cells"]) for each in found["bundles"]] == [
        ("east", ["east"]),
        ("ew", ["west", "east"]),
    ]
    assert found["bundles"][0]["links"] == [{"from": "e1", "to": "e2"}]
    assert found["trees"] == [{"name": "main", "cells": [["east", "west"]], "pubends": ["orders"]}]


def test_a_running_overlay_is_described_with_states_rates_and_what_links_carry() -> None:
    described = describe_overlay(TOPOLOGY, REPORTS[1], REPORTS[0])
    assert described.is_live
    found = described.to_json()
    states = {each["name"]: (each["state"], each["version"], each["rates"]) for each in found["brokers"]}
    assert states == {
        "e1": ("running", 2, {"published": 10.0, "delivered": 0.0}),
        "e2": ("not running", None, {}),
        "w1": ("running", 2, {"published": 0.0, "delivered": 0.0}),
    }
    links = {link.ends: link.activity for each in described.bundles for link in each.links}
    assert links["w1", "e1"] == LinkActivity(True, False, ("orders",), 10.0, 1000.0)
    down = links["e1", "e2"]
    assert down is not None
    assert not down.up


def conditioned(*conditions: LinkCondition | None) -> str:
    """Why a link is avoided whose ends say this of it."""
    reports = {}
    for (name, peer), condition in zip((("e1", "w1"), ("w1", "e1")), conditions, strict=True):
        found = report(1.0, 0, links={peer: True}, upstream=None)
        links = tuple(replace(each, condition=condition) for each in found.links)
        reports[name] = replace(found, links=links)
    (bundle,) = (each for each in describe_overlay(TOPOLOGY, reports).bundles if each.name == "ew")
    (activity,) = (each.activity for each in bundle.links if each.ends == ("w1", "e1"))
    assert activity is not None
    return activity.why


def test_it_is_said_why_a_link_is_used_less_than_others() -> None:
    good = LinkCondition(0, 1, None, 0.0004, None)
    assert conditioned(None, None) == ""
    assert conditioned(good, good) == ""
    damped = LinkCondition(4, 36, 38.2, 0.0004, None)
    assert conditioned(damped, good) == "died 36 times: avoided for 38 s more"
    thin = LinkCondition(3, 0, None, 0.04, 16_000)
    assert conditioned(thin, replace(good, grade=3)) == "slow: takes 0.13 Mbit/s, answers in 0.4 ms"


def test_a_first_report_has_no_rates() -> None:
    described = describe_overlay(TOPOLOGY, REPORTS[0])
    assert described.brokers[0].activity is not None
    assert described.brokers[0].activity.rates == {}
    activity = described.bundles[1].links[0].activity
    assert activity is not None
    assert activity.events_per_second is None
    assert activity.bytes_per_second is None


def test_a_link_that_was_made_anew_counts_from_the_start() -> None:
    early = {"e1": report(1.0, 500, links={"w1": True}, upstream=None)}
    late = {"e1": report(2.0, 30, links={"w1": True}, upstream=None)}
    described = describe_overlay(TOPOLOGY, late, early)
    activity = described.bundles[1].links[0].activity
    assert activity is not None
    assert activity.events_per_second == 30.0


def test_a_step_that_no_broker_takes_is_an_error_that_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.admin.connection.CONNECT_SECONDS", 0.05)
    step = Step("settle", replace(TOPOLOGY, version=3))
    with pytest.raises(OverlayChangeError, match="did not take it: not running") as caught:
        apply_step(step, wait_seconds=0.0)
    assert caught.value.broker == "e1"


def test_a_plan_says_what_differs_and_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.admin.topology_changes.find_topology", lambda _urls: TOPOLOGY)
    head, _, rest = OVERLAY.partition("[brokers.w1]")
    after = parse_topology(head, 0)
    assert rest
    assert plan_change(after).to_json() == {
        "version": 2,
        "changes": [
            {"kind": "broker", "name": "w1", "what": "removed", "detail": "drained first"},
            {"kind": "link", "name": "e1 - w1", "what": "removed", "detail": ""},
            {"kind": "link", "name": "e2 - w1", "what": "removed", "detail": ""},
            {"kind": "tree", "name": "main", "what": "changed", "detail": ""},
        ],
        "steps": [
            {"step": "drain", "version": 3, "added": [], "drained": ["w1"]},
            {"step": "remove", "version": 4, "added": [], "drained": []},
        ],
    }
