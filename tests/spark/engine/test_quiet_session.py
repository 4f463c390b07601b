"""What goes wrong in Spark is one line, and what the JVM says on the way is not on the screen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from tidemark.errors import TidemarkError
from tidemark.spark.engine import session
from tidemark.spark.engine.session import quiet_session, reason_of

GATEWAY = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
SUBMIT = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark
	at org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
TASK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "x.py", line 3, in f
FileNotFoundError: [Errno 2] No such file or directory: 'p.jsonl'

JVM stacktrace:
org.apache.spark.SparkException: Job aborted
"""


@pytest.mark.parametrize(
    ("text", "said", "reason"),
    [
        (GATEWAY, SUBMIT, "Master must either be yarn or start with spark"),
        (TASK, "", "[Errno 2] No such file or directory: 'p.jsonl'"),
        (GATEWAY, "", GATEWAY),
        ("\n\n", "", "it does not say why"),
    ],
    ids=["submit", "task", "nothing said", "nothing at all"],
)
def test_the_line_that_says_what_went_wrong_is_found(text: str, said: str, reason: str) -> None:
    assert reason_of(text, said) == reason


def spoken(master: str, job: Callable[[Any], None]) -> None:
    with quiet_session("test", master) as spark:
        job(spark)


class _Session:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def test_what_is_said_at_the_start_is_kept_from_the_screen_and_used(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: str) -> None:
        os.write(2, SUBMIT.encode())
        raise PySparkRuntimeError(GATEWAY)

    monkeypatch.setattr(session, "session", fail)
    with pytest.raises(TidemarkError, match=r"^Spark \(moon\) cannot do it: Master must"):
        spoken("moon", lambda _: None)
    assert capfd.readouterr().err == ""


def test_a_session_is_stopped_and_the_screen_is_back(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    running = _Session()
    monkeypatch.setattr(session, "session", lambda *_: running)

    def fail(_: Any) -> None:
        os.write(2, b"seen")
        raise PySparkRuntimeError(TASK)

    with pytest.raises(TidemarkError, match="No such file"):
        spoken("local", fail)
    assert capfd.readouterr().err == "seen"
    assert running.stopped == 1
