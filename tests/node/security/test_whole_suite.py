"""A small part of the suite with security on; `./run test --secure` runs all of it so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import security_on
from tests.waiting import PATIENCE_SECONDS
from tidemark.admin import describe_overlay, urls_of
from tidemark.node.config.units import HostPort
from tidemark.node.topology.topology import BrokerPlacement, Topology

HERE = Path(__file__).resolve().parents[3]
#: Clients, an overlay, a restart, questions of administrators and a broker process, in a few seconds.
PART = (
    "tests/client/test_first_steps.py",
    "tests/admin/test_overlay_lag.py",
    "tests/cli/test_cli_on_broker.py::test_events_go_from_arguments_to_a_durable_subscriber",
)


@pytest.mark.slow
def test_a_part_of_the_suite_runs_with_security_on() -> None:
    if security_on.is_on():
        pytest.skip("all of the suite runs so")
    pytest.importorskip("cryptography")
    command = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--secure", *PART)
    done = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout


def test_brokers_of_an_overlay_are_called_as_the_one_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placement = BrokerPlacement("b1", "b1", HostPort("127.0.0.1", 7676), ("main",))
    topology = Topology.build([placement], [])
    plain, secured = {"b1": "tidemark://127.0.0.1:7676"}, {"b1": "tidemark+tls://127.0.0.1:7676"}
    monkeypatch.delenv("TIDEMARK_BROKER", raising=False)
    monkeypatch.setenv("TIDEMARK_CA", "ca.pem")
    assert urls_of(topology) == urls_of(topology, "tidemark://10.0.0.1:1") == plain
    assert urls_of(topology, "tidemark+tls://10.0.0.1:1") == secured
    monkeypatch.setenv("TIDEMARK_BROKER", "tidemark+tls://10.0.0.1:1")
    assert urls_of(topology) == secured
    assert urls_of(topology, "10.0.0.1:1") == plain
    (described,) = describe_overlay(topology).brokers
    assert described.url == secured["b1"]
