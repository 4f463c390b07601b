"""The Containerfile and the Kubernetes example name only what there is, and brokers start as they say."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from tests.deploy.prometheus import DEPLOY
from tests.node.monitoring.test_http import fetch, get
from tests.node.security.secured import document
from tests.node.speech import Stage, play
from tidemark.cli import main
from tidemark.node.config.loading import load
from tidemark.node.config.settings import KEYS, Config
from tidemark.node.security.certificates import issue, make_authority

ROOT = DEPLOY.parent
PORTS = {"7676", "7677", "7678"}


def instructions() -> list[tuple[str, str]]:
    """The lines of the Containerfile: instruction and arguments."""
    text = (DEPLOY / "container" / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def of(instruction: str) -> list[str]:
    return [arguments for name, arguments in instructions() if name == instruction]


def check_command(words: list[str]) -> None:
    """A command of ours has only options that there are."""
    shown = CliRunner().invoke(main, [words[0], "--help"])
    assert shown.exit_code == 0
    assert all(word in shown.output for word in words if word.startswith("--"))


def manifests() -> dict[str, dict[str, Any]]:
    """The objects of the Kubernetes example by kind."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "tidemark.yaml").read_text()))
    return {each["kind"]: each for each in found}


def test_the_containerfile_copies_what_is_there_and_installs_extras_that_exist() -> None:
    sources = [word for line in of("COPY") if "--from=" not in line for word in line.split()[:-1]]
    assert sources
    assert all((ROOT / each).exists() for each in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (extras,) = re.findall(r"/source\[([\w,]+)\]", " ".join(of("RUN")))
    assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()
    needed = {"src", "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert needed <= set(sources)
    assert [each.split()[0] for each in of("FROM")] == ["docker.io/library/python:3.13-slim"] * 2
    assert set(of("EXPOSE")[0].split()) == PORTS


def test_the_container_runs_a_command_of_ours_on_a_file_that_was_copied_there() -> None:
    assert json.loads(of("ENTRYPOINT")[0]) == ["tidemark"]
    command = json.loads(of("CMD")[0])
    check_command(command)
    assert any(line.split()[-1] == command[-1] for line in of("COPY"))
    variables = dict(word.split("=", 1) for word in shlex.split(of("ENV")[0]))
    assert variables["PATH"].startswith("/opt/tidemark/bin:")
    settings = load(DEPLOY / "container" / "tidemark.toml")
    assert settings.storage.data_dir.startswith(of("VOLUME")[0])


def test_a_broker_starts_with_the_settings_of_the_container(tmp_path: Path) -> None:
    text = (DEPLOY / "container" / "tidemark.toml").read_text()
    (tmp_path / "tidemark.toml").write_text(text.replace("/var/lib/tidemark", str(tmp_path)))
    assert health(load(tmp_path / "tidemark.toml", options=OWN_PORTS)) == "ok"


def test_the_objects_of_kubernetes_fit_together() -> None:
    objects = manifests()
    assert set(objects) == {"ConfigMap", "Service", "StatefulSet"}
    stateful = objects["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {each["name"] for each in pod["volumes"]} | {
        each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]
    }
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == objects["Service"]["spec"]["selector"] == labels
    assert stateful["serviceName"] == objects["Service"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["targetPort"]: each["port"] for each in objects["Service"]["spec"]["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert next(iter(container[probe].values()))["port"] in ports
    assert str(pod["securityContext"]["runAsUser"]) == of("USER")[0]
    assert f"-t {container['image']} " in (DEPLOY / "container" / "Containerfile").read_text()
    check_command(container["args"])
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    settings = tomllib.loads(objects["ConfigMap"]["data"]["tidemark.toml"])
    named = [value for table in settings.values() for value in table.values() if value.startswith("/")]
    assert all(
        any(value.startswith(f"{mount}/") for mount in mounts) for value in [*named, container["args"][-1]]
    )
    assert {f"{name}.{key}" for name, table in settings.items() for key in table} <= KEYS.keys()
    listens = {settings["broker"]["listen"], settings["http"]["listen"]}
    assert listens == {f"0.0.0.0:{port}" for port in ports.values()}


def test_a_broker_starts_with_the_settings_of_kubernetes(tmp_path: Path) -> None:
    (tmp_path / "access").mkdir()
    (tmp_path / "access" / "http-token").write_text("a token for tests")
    (tmp_path / "access" / "access.toml").write_text(document())
    made = issue(make_authority(), "tidemark-0", hosts=["127.0.0.1"], broker="tidemark-0")
    made.save(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
    text = manifests()["ConfigMap"]["data"]["tidemark.toml"]
    text = text.replace("/etc/tidemark", str(tmp_path)).replace("/var/lib/tidemark", str(tmp_path))
    (tmp_path / "tidemark.toml").write_text(text)
    assert health(load(tmp_path / "tidemark.toml", options=OWN_PORTS)) == "ok"


OWN_PORTS = {"broker.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}


def health(config: Config) -> str:
    """Start a broker with these settings; return what it says of itself."""
    said: list[str] = []

    async def story(stage: Stage) -> None:
        node = await stage.node(config)
        assert node.http_address is not None
        if config.security.certificate:
            said.append(await asyncio.to_thread(over_tls, str(node.http_address)))
        else:
            said.append(json.loads((await fetch(node.http_address, get("/health")))[1])["status"])

    play(story)
    return said[0]


def over_tls(address: str) -> str:
    """The health that a probe gets, which like the kubelet does not ask who signed the certificate."""
    from ssl import _create_unverified_context
    from urllib.request import urlopen

    with urlopen(f"https://{address}/health", context=_create_unverified_context()) as page:
        return str(json.load(page)["status"])
