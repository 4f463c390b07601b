"""A broker is lost under load with its disk, and goes on from a backup on an empty one; the ledgers judge."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.ledger_checks import started
from tests.ports import free_ports
from tidemark import sync
from tidemark.admin.backups.make import back_up
from tidemark.admin.backups.restore import check_backup, restore_backup
from tidemark.lab.processes.ledger import Audit, read
from tidemark.lab.processes.process_harness import (
    ManagedBroker,
    ProcessHarness,
)

pytestmark = pytest.mark.chaos

EVENTS = 300
PACE = ("--rate", "500", "--padding", "1000")
#: Small segments, so that a backup has sealed ones and the log lets go of some while it is made.
SMALL = {"storage__segment": "64KiB"}


def data_of(broker: ManagedBroker) -> Path:
    with sync.connect(broker.url) as client:
        return Path(client.ask("status")["data_dir"])


def lose(broker: ManagedBroker, data: Path) -> None:
    """The machine is gone, with everything that was on its disk."""
    broker.kill()
    shutil.rmtree(data)


def publishing(harness: ProcessHarness, url: str, *names: str) -> None:
    """Start publishers, and wait until each has half of its events acknowledged."""
    parts = [harness.publisher(name, url, EVENTS, *PACE) for name in names]
    for part in parts:
        part.start()
    for part in parts:
        part.reached(EVENTS // 2)


def acknowledged(harness: ProcessHarness) -> set[str]:
    """The keys of all events that their publishers know to be acknowledged."""
    lines = [line for part in harness.publishers for line in read(part.ledger)]
    return {line["key"] for line in lines if line.get("outcome") == "acked"}


def assert_once_or_in_a_gap(found: Audit, published: int, acknowledged: set[str]) -> None:
    """Nothing is lost or wrong. Only what was on its way when the machine was lost may come twice.

    Such an event was logged and told, and its publisher had no acknowledgement: it is published again.
    """
    assert (found.published, found.acknowledged) == (published, published)
    for account in found.accounts:
        assert not account.lost, account
        assert not account.wrong, account
        assert not acknowledged & {*account.duplicated, *account.out_of_order}, account
        assert account.delivered + account.in_gaps >= account.matched > 0, account


def test_a_lone_broker_is_lost_and_goes_on_from_its_backup(harness: ProcessHarness) -> None:
    broker = started(harness, **SMALL)
    data, backups = data_of(broker), harness.directory / "backups"
    harness.subscriber("all", broker.url)
    harness.subscriber("cheap", broker.url, "price < 30")
    away = harness.subscriber("away", broker.url, "qty > 100")
    harness.subscribe()
    publishing(harness, broker.url, "before")
    away.stop()
    first = back_up(broker.url, backups)
    assert first.files > 6
    assert first.reused_files == 0
    publishing(harness, broker.url, "between")
    second = back_up(broker.url, backups)
    assert second.reused_files > 0
    publishing(harness, broker.url, "after", "too")
    with sync.connect(broker.url) as client:
        life = client.ask("status")["incarnation"]
    lose(broker, data)
    before = acknowledged(harness)
    assert restore_backup(backups, data).backup == second.backup
    broker.start()
    with sync.connect(broker.url) as client:
        status = client.ask("status")
    assert status["incarnation"] > life
    assert any("restored from the backup" in each for each in status["alarms"])
    away.start()
    assert {part.wait() for part in harness.publishers} == {0}
    found = harness.settled()
    assert_once_or_in_a_gap(found, 4 * EVENTS, before)
    assert all(account.gaps for account in found.accounts)
    assert {each.subscriber for each in found.accounts if each.in_gaps} >= {"away"}
    # It is a broker like any other from now on.
    broker.kill()
    broker.start()
    third = back_up(broker.url, backups, keep=2)
    assert third.removed == (Path(first.backup).name,)
    assert check_backup(backups).backup == third.backup


OVERLAY = """
[brokers.{first}]
listen = "127.0.0.1:{ports[0]}"
pubends = ["main"]
[brokers.{second}]
listen = "127.0.0.1:{ports[1]}"
[bundles.both]
cells = ["{first}", "{second}"]
"""


@pytest.mark.parametrize(
    "which", ["with the log", pytest.param("with the subscribers", marks=pytest.mark.long)]
)
def test_a_broker_of_an_overlay_is_lost_and_its_neighbour_goes_on_with_it(
    which: str, harness: ProcessHarness
) -> None:
    file = harness.directory / "overlay.toml"
    file.write_text(OVERLAY.format(first="east", second="west", ports=free_ports(2)))
    east, west = (harness.placed_broker(name, file) for name in ("east", "west"))
    for part in (east, west):
        part.start()
    lost = east if which == "with the log" else west
    data, backups = data_of(lost), harness.directory / "backups"
    harness.subscriber("all", west.url)
    away = harness.subscriber("away", west.url, "qty > 100")
    harness.subscribe()
    publishing(harness, east.url, "before")
    away.stop()
    back_up(lost.url, backups)
    publishing(harness, east.url, "after")
    lose(lost, data)
    before = acknowledged(harness)
    restore_backup(backups, data)
    lost.start()
    away.start()
    assert {part.wait() for part in harness.publishers} == {0}
    found = harness.settled()
    assert_once_or_in_a_gap(found, 2 * EVENTS, before)
    if lost is west:
        # The log is whole, and the subscribers hold their tokens: nobody has lost anything. Of a lost log
        # the neighbour may still have the end in its window, or not.
        assert found.is_clean, found.as_dict()
        assert found.total("in_gaps") == 0
