"""Readers that come and go abruptly: a console keeps nothing of them."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.console.live_console import live_console
from tests.live_node import live_node
from tests.waiting import eventually
from tidemark import sync

READERS = 60


def test_a_reader_that_hangs_up_at_once_leaves_no_stream_behind(tmp_path: Path) -> None:
    with live_node(tmp_path) as node, live_console(node.url) as console, sync.connect(node.url) as tm:
        request = f"GET /topics/t/events HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode()
        for _ in range(READERS):
            with socket.create_connection(("127.0.0.1", console.port)) as reader:
                reader.sendall(request)
        with console.stream("/topics/t/events") as stream:
            stream.wait_open()
            eventually(lambda: len(tm.ask("subscriptions")) == 1)
