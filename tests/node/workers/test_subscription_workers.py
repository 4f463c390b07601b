"""SubscriptionWorkers: which worker has which durable subscription."""

from __future__ import annotations

from pathlib import Path

from tidemark.node.workers.subscription_workers import SubscriptionWorkers


def test_the_worker_that_took_a_subscription_last_has_it(tmp_path: Path) -> None:
    one, two = (SubscriptionWorkers(tmp_path / "places", name) for name in ("worker-1", "worker-2"))
    assert one.of("audit") is None
    one.take("audit")
    assert two.of("audit") == "worker-1"
    two.take("audit")
    assert one.of("audit") == "worker-2"
    one.end("audit")
    assert one.of("audit") == "worker-2"
    two.end("audit")
    assert one.of("audit") is None
    one.close()
    two.close()


def test_what_a_worker_has_when_it_starts_counts_if_nobody_has_taken_it(tmp_path: Path) -> None:
    one, two = (SubscriptionWorkers(tmp_path / "places", name) for name in ("worker-1", "worker-2"))
    one.take("moved")
    two.enter([("moved", ""), ("mine", "")])
    assert (two.of("moved"), two.of("mine")) == ("worker-1", "worker-2")
    one.close()
    two.close()
    again = SubscriptionWorkers(tmp_path / "places", "worker-1")
    assert again.of("mine") == "worker-2"
    again.close()


def test_a_file_that_cannot_be_used_says_nothing_and_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "places").write_bytes(b"no file of SQLite" * 100)
    places = SubscriptionWorkers(tmp_path / "places", "worker-1")
    places.take("audit")
    places.enter([("other", "")])
    assert places.of("audit") is None
    places.end("audit")
    places.close()
    places.take("audit")
    assert places.of("audit") is None


def test_two_users_may_have_subscriptions_of_one_name_at_two_workers(tmp_path: Path) -> None:
    one, two = (SubscriptionWorkers(tmp_path / "places", name) for name in ("worker-1", "worker-2"))
    one.take("audit", "alice")
    two.take("audit", "bob")
    assert [one.of("audit", who) for who in ("alice", "bob")] == ["worker-1", "worker-2"]
    assert one.of("audit", "admin") in ("worker-1", "worker-2")
    two.end("audit", "bob")
    assert one.of("audit", "bob") == "worker-1"
    one.close()
    two.close()
