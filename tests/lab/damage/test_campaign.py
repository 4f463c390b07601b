"""A harmed data directory is refused, told or harmless: a small part of `./run damage`, judged by ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from tidemark.lab.damage.campaign import HARMLESS, REFUSED, SILENT, TOLD, faults_of, judge, scratch
from tidemark.lab.damage.harms import Harm, flipped_bits, whole_files
from tidemark.lab.damage.stepped_broker import SECOND, SteppedBroker
from tidemark.lab.damage.story import Moment, put_back, tell
from tidemark.persistence.vouching import Vouching

#: Bits that are flipped in each of the two directories; `./run damage --places 2000` flips more.
PLACES = 20


@pytest.fixture(scope="module")
def moments() -> Iterator[dict[str, Moment]]:
    with scratch() as path:
        yield {each.name: each for each in tell(path)}


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as path:
        yield path / "harmed"


@pytest.mark.parametrize(
    ("name", "kinds", "lives"),
    [
        ("killed", ("deleted", "older"), 1),
        ("stopped", ("deleted", "older"), 1),
        ("restarted", ("emptied", "older"), 2),
    ],
)
def test_every_file_that_is_deleted_emptied_or_older_is_refused_told_or_harmless(
    name: str, kinds: tuple[str, ...], lives: int, moments: dict[str, Moment], directory: Path
) -> None:
    moment = moments[name]
    harms = [harm for harm in whole_files(moment) if harm.kind in kinds or harm.kind == "none"]
    harms = [harm for harm in harms if not harm.where.endswith("reserve")]
    verdicts = [judge(moment, harm, directory, [lives]) for harm in harms]
    assert not [each for each in verdicts if each.outcome == SILENT]
    outcomes = {(each.harm.kind, each.harm.where): each.outcome for each in verdicts}
    expected = {
        ("none", ""): HARMLESS,
        ("deleted", "tables/"): REFUSED,
        ("older", "tables/"): REFUSED,
        ("deleted", "tables/tables.sqlite"): REFUSED,
        ("older", "tables/tables.sqlite-wal"): REFUSED,
        ("emptied", "tables/tables.sqlite-wal"): REFUSED,
        ("deleted", "log/"): TOLD,
        ("older", "log/"): TOLD,
        ("emptied", "log/0000000005.segment"): TOLD,
        ("deleted", "pfs/"): TOLD,
        ("deleted", "witness/"): HARMLESS,
        ("older", "witness/"): HARMLESS,
    }
    assert outcomes.items() >= {each: expected[each] for each in expected if each in outcomes}.items()
    assert len(outcomes.keys() & expected.keys()) > len(kinds)


def test_a_harm_to_a_file_is_done_to_that_file_alone(moments: dict[str, Moment]) -> None:
    moment = moments["killed"]
    left = Harm("deleted", "tables/tables.sqlite").done_to(moment)
    assert moment.files.keys() - left.keys() == {"tables/tables.sqlite"}


@pytest.mark.parametrize(("name", "lives"), [("killed", 1), ("restarted", 2)])
def test_a_flipped_bit_anywhere_is_refused_told_or_harmless(
    name: str, lives: int, moments: dict[str, Moment], directory: Path
) -> None:
    moment = moments[name]
    verdicts = [judge(moment, harm, directory, [lives]) for harm in flipped_bits(moment, PLACES, Random(7))]
    assert not [each for each in verdicts if each.outcome == SILENT]


def test_a_store_that_trusts_its_tables_would_be_caught(moments: dict[str, Moment], directory: Path) -> None:
    with patch.object(Vouching, "check_tables", lambda *_, **__: None):
        assert judge(moments["stopped"], Harm("deleted", "tables/"), directory).outcome == SILENT


def test_accepted_tables_tell_every_subscriber_that_may_have_been_lost_a_gap(
    moments: dict[str, Moment], directory: Path
) -> None:
    moment = moments["killed"]
    put_back(Harm("deleted", "tables/").done_to(moment), directory)
    readers, writers = moment.clients()
    broker = SteppedBroker(directory, moment.now + 60 * SECOND, accept_damage=True)
    assert any("accepted" in alarm for alarm in broker.alarms)
    for writer in writers:
        broker.publish(writer, 2)
    for reader in readers:
        broker.subscribe(reader)
    broker.pass_time(2 * SECOND)
    for writer in writers:
        broker.publish(writer, 2)
    broker.pass_time(2 * SECOND)
    broker.kill()
    assert not [fault for reader in readers for fault in faults_of(reader, writers)]
    by_name = {reader.name: reader for reader in readers}
    assert by_name["kept"].gaps
    assert by_name["late"].gaps
    # Who holds its token goes on from there.
    assert len(by_name["lazy"].events) > len(moment.readers[1].events)
