"""A real Prometheus for tests: Debian's, where it is installed or where `./run test` has unpacked it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests import security_on
from tests.ports import free_ports
from tests.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "tidemark.rules.yml"
_UNPACKED = Path(sys.prefix) / "prometheus" / "usr" / "bin"
WHY_NOT = (
    "NO PROMETHEUS: metrics, dashboard and alerts were not tried; apt-get install prometheus, or ./run test"
)

#: What it answers until it has read its files.
STARTING = 503


def found(name: str) -> str | None:
    """Where a program of the package prometheus is; None if it is not there."""
    unpacked = _UNPACKED / name
    return shutil.which(name) or (str(unpacked) if unpacked.exists() else None)


PROMETHEUS, PROMTOOL = found("prometheus"), found("promtool")
IS_THERE = PROMETHEUS is not None and PROMTOOL is not None


def promtool(*arguments: str, said: str = "") -> str:
    """Run promtool, which must succeed without a word of blame; return what it says."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=said, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """One that runs, asked over its HTTP interface."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while it does not answer."""
        try:
            with urlopen(f"http://{self._address}/api/v1/{what}?{urlencode(parameters)}") as page:
                answer = json.load(page)
        except ConnectionError:
            return None
        except URLError as error:
            if isinstance(error.reason, ConnectionError) or getattr(error, "code", 0) == STARTING:
                return None
            raise
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[Any]:
        """The series that an expression has now."""
        answer = self.ask("query", query=expression)
        return list(answer["result"]) if answer is not None else []

    def healths(self) -> list[str]:
        """What it thinks of each rule."""
        return [rule["health"] for rule in self.ask("rules")["groups"][0]["rules"]]

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire now: name and instance."""
        found = self.ask("alerts")["alerts"]
        return {
            (each["labels"]["alertname"], each["labels"].get("instance", ""))
            for each in found
            if each["state"] == "firing"
        }


@contextmanager
def watching(path: Path, targets: list[str]) -> Iterator[Prometheus]:
    """A Prometheus that is set as deploy/ says, but looks often, and whose alerts do not wait."""
    assert PROMETHEUS is not None
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    (path / "tidemark.rules.yml").write_text(yaml.safe_dump(rules))
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    scheme, _ = security_on.http()
    for job in config["scrape_configs"]:
        job.pop("scrape_interval", None)
        job["scheme"], job["tls_config"] = scheme, {"insecure_skip_verify": True}
        job["authorization"] = {"credentials": security_on.PASSWORD}
        job["static_configs"] = [{"targets": targets}]
    (path / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        PROMETHEUS,
        f"--config.file={path / 'prometheus.yml'}",
        f"--storage.tsdb.path={path / 'tsdb'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command)
    prometheus = Prometheus(address)
    try:
        eventually(lambda: process.poll() is not None or prometheus.ask("status/runtimeinfo") is not None)
        assert process.poll() is None
        yield prometheus
    finally:
        process.terminate()
        process.wait()
