"""Ctrl-C in a program that uses the blocking client: a KeyboardInterrupt where it was, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.client.fake_broker import FakeBroker
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark.wire.frames import Publish

#: Whoever started the tests may have had interrupts ignored. That something was slow is no news here.
OPENING = """
import itertools, logging, signal, time
import tidemark.sync

signal.signal(signal.SIGINT, signal.default_int_handler)
logging.getLogger("asyncio").setLevel(logging.ERROR)

def ready():
    print("ready", flush=True)

"""
WITH_CLIENT = """
with tidemark.sync.connect(url) as tm:
    tm.create_topic("t", "[n: int]")
"""
ITERATES = f"""{WITH_CLIENT}
    with tm.subscribe("t", durable="d") as sub:
        ready()
        for event in sub:
            pass
"""
WITHOUT_A_BLOCK = """
tm = tidemark.sync.connect(url)
tm.create_topic("t", "[n: int]")
sub = tm.subscribe("t", durable="d")
ready()
sub.next()
"""
PUBLISHES = f"""{WITH_CLIENT}
    for n in itertools.count():
        tm.publish("t", {{"n": n}})
        if n == 100:
            ready()
"""
ACKNOWLEDGES = f"""{WITH_CLIENT}
    with tm.subscribe("t", durable="d", ack="transacted") as sub:
        for n in itertools.count():
            tm.publish_many("t", [{{"n": n}}] * 10)
            with tm.transaction() as tx:
                sub.next()
                tx.ack(sub)
            if n == 20:
                ready()
"""
CONNECTS = """
for n in itertools.count():
    with tidemark.sync.connect(url):
        pass
    if n == 20:
        ready()
"""
FINDS_NO_BROKER = """
ready()
tidemark.sync.connect("tidemark://127.0.0.1:1", connect_timeout=60, wait_for_broker=True)
"""
SLEEPS = f"""{WITH_CLIENT}
    ready()
    time.sleep(60)
"""


@contextmanager
def program(text: str, broker: FakeBroker) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready. Python's development mode warns of what it leaves open."""
    text = f"{OPENING}url = {broker.url!r}\n{text}"
    command = [sys.executable, "-X", "dev", "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "text",
    [ITERATES, WITHOUT_A_BLOCK, PUBLISHES, ACKNOWLEDGES, CONNECTS, FINDS_NO_BROKER, SLEEPS],
    ids=["iterates", "without a block", "publishes", "acknowledges", "connects", "finds no broker", "sleeps"],
)
def test_an_interrupt_shows_where_the_program_was_and_nothing_else(text: str, broker: FakeBroker) -> None:
    with program(text, broker) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == -signal.SIGINT, said
    assert said.startswith("Traceback"), said
    assert said.endswith("\nKeyboardInterrupt\n"), said
    assert said.count("Traceback") == 1, said


def test_an_interrupt_while_it_closes_ends_the_wait_and_leaves_nothing_behind(broker: FakeBroker) -> None:
    broker.on_publish = lambda _: "lose"
    text = f"""{WITH_CLIENT}
    try:
        ready()
        tm.publish("t", {{"n": 1}})
    except KeyboardInterrupt:
        pass
    print("closes", flush=True)
    tm.close(60)
"""
    with program(text, broker) as process:
        eventually(lambda: broker.of(Publish))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "closes\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == -signal.SIGINT, said
    assert said.endswith("\nKeyboardInterrupt\n"), said
    assert said.count("Traceback") == 1, said
