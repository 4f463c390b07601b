"""The image is built of the Containerfile, and a broker in it keeps what it was given over a stop and a kill.

`./run image` runs this file; elsewhere it is skipped, because a build takes minutes and fetches packages.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.image import IS_THERE, KEPT, WHY_NOT, Images
from tests.ports import free_ports
from tests.waiting import eventually
from tidemark import __version__, sync

pytestmark = pytest.mark.skipif(not IS_THERE, reason=WHY_NOT)
#: The user of the Containerfile and of the Kubernetes example.
USER = 7676


@pytest.fixture(scope="module")
def images() -> Images:
    assert KEPT is not None
    images = Images(Path(KEPT))
    said = images.build()
    assert "warning" not in said.lower(), said
    return images


def process_in(container: subprocess.Popen[bytes], words: str) -> int:
    """The process of a container that runs these words; 0 while there is none."""
    parents: dict[int, int] = {}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(state[1])
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if words in line and os.stat(entry).st_uid == USER:
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    for each in found:
        above = each
        while above in parents:
            if above == container.pid:
                return each
            above = parents[above]
    return 0


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def broker(images: Images, container: str, volume: Path, port: int) -> Iterator[int]:
    """The broker of the image as it is started by nothing but the image's own words; its process."""
    variables = {"TIDEMARK_BROKER_LISTEN": f"127.0.0.1:{port}", "TIDEMARK_HTTP_LISTEN": ""}
    running = subprocess.Popen(images.command(container, volume, [], **variables))
    try:
        eventually(lambda: running.poll() is not None or listens(port))
        yield process_in(running, "tidemark broker")
    finally:
        left = process_in(running, "tidemark broker")
        if left:
            os.kill(left, signal.SIGKILL)
        running.wait()


def test_the_image_runs_every_command_as_a_user_without_rights(images: Images, tmp_path: Path) -> None:
    settings = images.settings()
    assert settings["User"] == str(USER)
    assert settings["StopSignal"] == "SIGTERM"
    with images.container() as container:

        def said(*words: str) -> str:
            command = images.command(container, tmp_path, list(words))
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        assert said("--version").strip() == f"tidemark, version {__version__}"
        for extra in ("console", "topology", "access"):
            assert "Usage" in said(extra, "--help")


def test_a_broker_in_the_image_keeps_its_events_over_a_stop_and_a_kill(
    images: Images, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, USER, USER)
    (port,) = free_ports(1)
    url = f"tidemark://127.0.0.1:{port}"
    with images.container() as container:
        for number, stop in enumerate((signal.SIGTERM, signal.SIGKILL)):
            with broker(images, container, volume, port) as process:
                with sync.connect(url) as tm:
                    tm.create_topic("t", "[n: int]")
                    if not number:
                        with tm.subscribe("t", durable="away", ack="client"):
                            pass
                    tm.publish("t", {"n": number})
                os.kill(process, stop)
                eventually(lambda process=process: not Path(f"/proc/{process}").exists())  # type: ignore[misc]
        with (
            broker(images, container, volume, port),
            sync.connect(url) as tm,
            tm.subscribe("t", durable="away") as sub,
        ):
            events = [sub.next(600.0) for _ in range(2)]
        assert [event["n"] for event in events if event is not None] == [0, 1]
    assert {entry.stat().st_uid for entry in volume.iterdir()} == {USER}
