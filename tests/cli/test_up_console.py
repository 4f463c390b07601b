"""`tidemark up` and the console beside it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark.cli import main

pytestmark = pytest.mark.open_broker(reason="a console beside an open broker asks for no login")


def page(port: int) -> int:
    """The status of the first page; 0 while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_console_comes_up_with_the_broker_and_ends_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-m", "tidemark", "up", "--listen", "127.0.0.1:0", "--http", "", "--no-pipeline"),
        *("--console", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), "--json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        ready = json.loads(up.stdout.readline())
        assert ready["console"] == f"http://127.0.0.1:{port}"
        eventually(lambda: page(port) == 200)
        os.kill(up.pid, signal.SIGKILL)
        up.wait()
    eventually(lambda: page(port) == 0)


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        up = CliRunner().invoke(main, ["up", "--console", address])
        with patch.dict(os.environ):  # a console takes what logs clients in out of its process's environment
            console = CliRunner().invoke(main, ["console", "--listen", address])
    assert up.exit_code == 2
    assert "is in use" in up.output
    assert console.exit_code == 1
    assert "choose another with --listen" in console.output
