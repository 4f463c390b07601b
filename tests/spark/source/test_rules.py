"""What Spark reads for a user with rules: what the broker shows that user, and nothing of the archive."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.node.security.login import make_verifier
from tidemark.spark.archive.archive import Archive
from tidemark.spark.options import source_options
from tidemark.spark.source.scan import Planner, SourceScan, located, topic_columns_of

PASSWORD = "a password of readers"
DOCUMENT = """
[roles.desk]
publish = [">"]
declare = [">"]
pipeline = true
durable = ["*"]
administer = true
[roles.reader]
subscribe = ["trades"]
read."trades" = "n < :claims.below"
hide."trades" = ["secret"]
[users.desk]
roles = ["desk"]
password = "{verifier}"
[users.alice]
roles = ["reader"]
claims = {{ below = 5 }}
password = "{verifier}"
"""


def read_as(user: str, node: LiveNode, monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, list[Any]]:
    """The archive that is read for a user beside the broker, and the rows, as a task reads them."""
    monkeypatch.setenv("TIDEMARK_USER", user)
    options = located(source_options({"broker": node.url, "topic": "trades", "retrySeconds": "10"}))
    scan: SourceScan = pickle.loads(pickle.dumps(SourceScan(options, topic_columns_of(options))))
    planner = Planner(scan)
    try:
        parts = list(planner.everything())
    finally:
        planner.close()
    return options.archive, [
        row for part in parts for record in scan.read(part) for row in record.to_pylist()
    ]


def test_a_scan_goes_by_the_rules_of_its_user_and_reads_no_archive_for_one_that_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "access.toml").write_text(DOCUMENT.format(verifier=make_verifier(PASSWORD).text))
    (tmp_path / "password").write_text(PASSWORD)
    monkeypatch.setenv("TIDEMARK_USER", "desk")
    monkeypatch.setenv("TIDEMARK_PASSWORD_FILE", str(tmp_path / "password"))
    options = {
        "security.mode": "accounts",
        "security.access": str(tmp_path / "access.toml"),
        "retention.archive": "true",
        "archive.path": str(tmp_path / "archive"),
    }
    with live_node(tmp_path, **options) as node:
        with sync.connect(node.url) as tm:
            tm.create_topic("trades", "[n: int, secret: string]")
            # It holds the events at the broker once they are archived.
            tm.subscribe(">", durable="holds").close()
            tm.publish_many("trades", [{"n": n, "secret": f"s{n}"} for n in range(10)])
        with Archive(node.url, tmp_path / "archive") as archive:
            archive.round()
        archived, rows = read_as("desk", node, monkeypatch)
        assert archived == str(tmp_path / "archive")
        assert [(row["n"], row["secret"]) for row in rows] == [(n, f"s{n}") for n in range(10)]
        archived, rows = read_as("alice", node, monkeypatch)
        assert archived is None
        assert [row["n"] for row in rows] == [0, 1, 2, 3, 4]
        assert not any("secret" in row for row in rows)


#: Reads a topic of each broker as a batch and as a stream, with an event log, and prints the plans.
QUERIES = """
import sys
from pathlib import Path
from tidemark.spark.engine.session import end, session

here, *urls = sys.argv[1:]
Path(here, "events").mkdir()
conf = {"enabled": "true", "dir": f"file://{here}/events", "compress": "false", "rolling.enabled": "false"}
spark = session("secrets", **{f"spark.eventLog.{name}": value for name, value in conf.items()})
for number, url in enumerate(urls):
    options = {"broker": url, "topic": "trades"}
    batch = spark.read.format("tidemark").options(**options).load()
    batch.explain("extended")
    print("rows", batch.count())
    frame = spark.readStream.format("tidemark").options(**options).load()
    writing = frame.writeStream.format("parquet").option("path", f"{here}/table-{number}")
    writing = writing.option("checkpointLocation", f"{here}/checkpoint-{number}")
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    query.explain(True)
end(spark)
"""


@pytest.mark.spark
def test_no_password_and_no_token_is_in_checkpoints_plans_and_event_logs_of_spark(tmp_path: Path) -> None:
    jwt = pytest.importorskip("jwt")
    key = "the key that signs tokens, of forty bytes"
    claims = {"sub": "zoe", "roles": ["desk"], "exp": time.time() + 3_600}
    token = str(jwt.encode(claims, key, "HS256"))
    here = tmp_path / "spark"
    here.mkdir()
    texts = {
        "access.toml": DOCUMENT.format(verifier=make_verifier(PASSWORD).text),
        "password": PASSWORD,
        "token": token,
        "key": key,
        "queries.py": QUERIES,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    accounts = {"security.mode": "accounts", "security.access": str(tmp_path / "access.toml")}
    bearer = {"security.bearer_keys": str(tmp_path / "key"), "security.bearer_roles": "roles"}
    with (
        live_node(tmp_path / "passwords", **accounts) as by_password,
        live_node(tmp_path / "tokens", **accounts, **bearer) as by_token,
    ):
        for node in (by_password, by_token):
            with sync.connect(node.url, user="desk", password=PASSWORD) as tm:
                tm.create_topic("trades", "[n: int, secret: string]")
                tm.publish_many("trades", [{"n": n, "secret": f"s{n}"} for n in range(10)])
        # A client brings its token to a broker that takes one, and its password to the other.
        done = subprocess.run(
            [sys.executable, tmp_path / "queries.py", here, by_password.url, by_token.url],
            env={
                **os.environ,
                "TIDEMARK_USER": "desk",
                "TIDEMARK_PASSWORD_FILE": str(tmp_path / "password"),
                "TIDEMARK_TOKEN_FILE": str(tmp_path / "token"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")
    assert done.stdout.count(b"rows 10") == 2
    assert b"Physical Plan" in done.stdout
    assert '"how": "bearer"' in (tmp_path / "tokens" / "data" / "audit.log").read_text()
    written = {each: each.read_bytes() for each in here.rglob("*") if each.is_file()}
    places = {each.relative_to(here).parts[0] for each in written}
    assert places == {"events", "table-0", "table-1", "checkpoint-0", "checkpoint-1"}
    (events,) = [content for each, content in written.items() if each.parent.name == "events"]
    assert b"SparkListenerSQLExecutionStart" in events
    assert b"physicalPlanDescription" in events
    for where, content in {**written, Path("plans"): done.stdout}.items():
        for secret in (PASSWORD, token, token.rpartition(".")[2], "SCRAM-SHA-256$"):
            assert secret.encode() not in content, where
