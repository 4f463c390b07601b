"""What Spark reads for a user with rules: what the broker shows that user, and nothing of the archive."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
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
