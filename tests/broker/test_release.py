"""Release: rows of hosts, by whichever way and in whatever order they come, and who is waited for."""

from __future__ import annotations

from typing import Any

from tidemark.broker.effects import CommitTables, SaveHosts, SendPeer
from tidemark.broker.publishing.release import ASK_AGAIN_US, NOBODY, NOTHING, TICK_TOLD, Hosts, Releases, Rows
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX
from tidemark.wire.frames import Heard, ReleaseRow

HERE_NOBODY = NOBODY


def row(host: str, sequence: int, released: int, *, asks: bool = False) -> ReleaseRow:
    return ReleaseRow(host, sequence, released, released, asks)


class Root:
    """The hosts of a pubend, with a disk that commits when told to."""

    def __init__(self, *known: str) -> None:
        self.turn = Turn()
        self.out = self.turn.out
        self.hosts = Hosts("p", dict.fromkeys(known, 0), self.turn)

    def present(self) -> list[str]:
        return ["n"]

    def is_present(self, peer: str) -> bool:
        return peer == "n"

    def is_member(self, broker: str) -> bool:
        return broker != ""

    def way_to(self, broker: str) -> str | None:
        del broker
        return None

    def hear(self, each: ReleaseRow, peer: str = "n") -> list[Any]:
        self.hosts.received(peer, each, self, 0)
        return self.out.take()

    def synced(self) -> list[Any]:
        self.turn.tables.flush()
        (commit,) = self.out.take()
        assert isinstance(commit, CommitTables)
        self.turn.tables.synced(commit.ticket)
        return self.out.take()


def test_a_host_is_heard_once_it_is_known_on_disk() -> None:
    root = Root()
    assert root.hear(row("h", 1, NOTHING[0], asks=True)) == [SaveHosts("p", {"h": 1})]
    assert root.hosts.total(HERE_NOBODY) == NOTHING  # it holds from now on
    assert root.synced() == [SendPeer("n", Heard("p", "h", 1, TICK_TOLD))]


def test_the_newest_row_of_a_host_holds_in_whatever_order_they_come() -> None:
    root = Root()
    root.hear(row("h", 5, 100))
    root.hear(row("h", 4, 900))
    assert root.hosts.total(HERE_NOBODY) == (100, 100)
    root.hear(row("h", 6, 50))  # it may say less
    assert root.hosts.total(HERE_NOBODY) == (50, 50)


def test_a_row_of_before_a_host_was_heard_counts_for_nothing_also_after_a_crash() -> None:
    root = Root()
    root.hear(row("h", 5, NOTHING[0], asks=True))
    root.hear(row("h", 6, 100))
    assert root.hear(row("h", 7, 50, asks=True)) == [SaveHosts("p", {"h": 7})]
    assert root.hear(row("h", 7, 50, asks=True)) == []  # it asks again, and is heard again
    heard = [SendPeer("n", Heard("p", "h", sequence, TICK_TOLD)) for sequence in (5, 7, 7)]
    assert root.synced() == heard
    root.hosts = Hosts("p", {"h": 7}, root.turn)  # a crash
    root.hear(row("h", 4, TICK_MAX))  # a relay has it from when nobody was there
    root.hear(row("h", 6, 100))
    assert root.hosts.total(HERE_NOBODY) is None
    root.hear(row("h", 7, 50))
    assert root.hosts.total(HERE_NOBODY) == (50, 50)


def test_a_host_that_has_not_reported_holds_until_it_is_struck_off() -> None:
    root = Root("h", "gone")
    root.hear(row("h", 1, 100))
    assert root.hosts.total(HERE_NOBODY) is None
    assert root.hosts.remove("gone")
    assert root.out.take() == [SaveHosts("p", {"h": 0})]
    assert root.hosts.total(HERE_NOBODY) == (100, 100)
    assert not root.hosts.remove("gone")


def test_a_broker_that_never_had_anybody_is_no_host() -> None:
    root = Root()
    assert root.hear(row("relay", 1, TICK_MAX)) == []
    assert root.hosts.known == ()
    assert root.hosts.total(HERE_NOBODY) == NOBODY
    assert root.hosts.total((7, 9)) == (7, 9)
    assert root.hosts.total(None) is None


def test_rows_are_passed_on_once_and_again_over_a_new_way() -> None:
    rows = Rows()
    rows.learn("a", row("h", 1, 10), 0)
    rows.learn("b", row("h", 1, 10), 0)
    assert [each.sequence for each in rows.unsaid("up")] == [1]
    assert rows.unsaid("up") == ()
    rows.learn("b", row("h", 2, 5), 0)
    assert [each.sequence for each in rows.unsaid("up")] == [2]
    rows.say_again()
    assert [each.sequence for each in rows.unsaid("up")] == [2]
    rows.keep_only(["other"])
    rows.say_again()
    assert rows.unsaid("up") == ()


def test_a_row_that_asks_is_passed_on_at_once_and_each_time() -> None:
    rows = Rows()
    rows.learn("a", row("h", 1, 10, asks=True), 0)
    rows.learn("a", row("g", 1, 10), 0)
    assert [each.host for each in rows.unsaid("up", asking_only=True)] == ["h"]
    rows.learn("a", row("h", 1, 10, asks=True), ASK_AGAIN_US)
    assert [each.host for each in rows.unsaid("up")] == ["g", "h"]


def test_a_row_that_asks_does_not_go_round_where_brokers_follow_each_other() -> None:
    """a follows b, b follows c, and c, for a while, follows a."""
    ring = {"a": Rows(), "b": Rows(), "c": Rows()}
    upstream = {"a": "b", "b": "c", "c": "a"}
    sent = 0

    def pass_on(who: str, now: int) -> None:
        nonlocal sent
        for each in ring[who].unsaid(upstream[who], asking_only=True):
            sent += 1
            assert sent < 10, "it goes round for ever"
            ring[upstream[who]].learn(who, each, now + sent)
            pass_on(upstream[who], now)

    asking = row("h", 1, 10, asks=True)
    for now in (0, ASK_AGAIN_US):
        ring["a"].learn("h", asking, now)
        pass_on("a", now)
    assert sent == 6
    assert ring["a"].way_back("h") == "h"
    assert ring["b"].way_back("h") == "a"


def test_what_came_from_a_neighbour_is_not_told_to_it_until_it_comes_by_another() -> None:
    rows = Rows()
    rows.learn("up", row("h", 1, 10), 0)
    assert rows.unsaid("up") == ()
    rows.learn("down", row("h", 1, 10), 0)
    assert [each.host for each in rows.unsaid("up")] == ["h"]


def test_the_answer_goes_back_the_way_that_the_host_asked_by_last_once_for_each_time() -> None:
    rows = Rows()
    rows.learn("a", row("h", 1, 10, asks=True), 0)
    assert rows.way_back("h") == "a"
    assert rows.way_back("h") is None
    rows.learn("b", row("h", 1, 10, asks=True), ASK_AGAIN_US)  # by another way, since "a" is gone
    assert rows.way_back("h") == "b"
    assert rows.way_back("g") is None


def test_a_host_says_that_nothing_may_go_and_begins_when_it_is_heard() -> None:
    each = Releases("h", 3)
    nobody = each.row("p", NOBODY, 0)
    assert nobody is not None
    assert (nobody.released, nobody.asks) == (TICK_MAX, False)
    assert nobody.sequence > 3 << 32
    assert each.row("p", NOBODY, 0) is None
    asking = each.row("p", None, 0)
    assert asking is not None
    assert ((asking.released, asking.delivered), asking.asks) == (NOTHING, True)
    assert not each.may_begin("p")
    assert each.row("p", None, 10) is None
    assert each.row("p", None, ASK_AGAIN_US) == asking
    assert not each.heard("p", nobody.sequence)
    assert each.heard("p", asking.sequence)
    assert each.may_begin("p")
    told = each.row("p", (5, 9), ASK_AGAIN_US)
    assert told is not None
    assert (told.released, told.delivered, told.asks) == (5, 9, False)


def test_who_comes_after_nobody_was_said_has_to_be_heard_anew() -> None:
    each = Releases("h", 1)
    first = each.row("p", None, 0)
    assert first is not None
    each.heard("p", first.sequence)
    each.row("p", NOBODY, 0)
    assert not each.may_begin("p")
    again = each.row("p", None, 0)
    assert again is not None
    assert again.asks


def test_a_hold_is_said_and_known_to_be_heard() -> None:
    each = Releases("h", 1)
    first = each.row("p", (50, 60), 0)
    assert first is not None
    each.heard("p", first.sequence)
    each.row("p", (50, 60), 0)
    done: list[str] = []
    number = each.hold("p", 20, lambda: done.append("held"))
    held = each.row("p", (50, 60), 1)
    assert held is not None
    assert (held.released, held.delivered, held.asks) == (20, 60, True)
    assert held.sequence > number
    each.heard("p", held.sequence)
    assert done == ["held"]
    each.let_go("p", number)
    free = each.row("p", (50, 60), 2)
    assert free is not None
    assert (free.released, free.asks) == (50, False)


# Once a second, and only where there was an event.


def test_a_row_that_only_raises_something_waits_and_one_that_lowers_something_does_not() -> None:
    releases = Releases("h", 1)
    releases.row("p", (10, 10), 0)
    releases.heard("p", (1 << 32) + 1)
    assert releases.row("p", (10, 10), 1, last_event=15) is not None
    assert releases.row("p", (20, 20), 2, last_event=15, is_due=False) is None
    raised = releases.row("p", (20, 20), 3, last_event=15)
    assert raised is not None
    assert releases.row("p", (30, 30), 4, last_event=15) is None  # silence, for which nobody waits
    lower = releases.row("p", (12, 30), 5, last_event=15, is_due=False)
    assert lower is not None
    assert (lower.released, lower.sequence) == (12, raised.sequence + 1)
    assert releases.row("p", (12, 40), 6, last_event=35) is not None  # delivered has passed an event


def test_a_relay_holds_back_what_only_raises_something() -> None:
    rows = Rows()
    rows.learn("a", row("h", 1, 10), 0)
    assert [each.sequence for each in rows.unsaid("up", is_due=False)] == [1]  # the first
    rows.learn("a", row("h", 2, 20), 0)
    assert rows.unsaid("up", is_due=False) == ()
    rows.learn("a", row("h", 3, 15), 0)
    assert rows.unsaid("up", is_due=False) == ()  # above what was passed on
    rows.learn("a", row("h", 4, 5), 0)
    assert [each.sequence for each in rows.unsaid("up", is_due=False)] == [4]
    rows.learn("a", row("h", 5, 30), 0)
    assert [each.sequence for each in rows.unsaid("up", is_due=True)] == [5]


# Holds that are in force.


def heard_at(releases: Releases, said: ReleaseRow | None) -> None:
    assert said is not None
    releases.heard("p", said.sequence)


def test_a_hold_is_in_force_if_no_row_since_the_last_that_was_heard_is_above_it() -> None:
    releases = Releases("h", 1)
    assert not releases.is_in_force("p", 50)
    first = releases.row("p", (0, 0), 0)
    assert not releases.is_in_force("p", 50)  # it was said, and nobody has heard it
    heard_at(releases, first)
    assert releases.is_in_force("p", 50)
    releases.row("p", (60, 60), 1)
    assert not releases.is_in_force("p", 50)
    lower = releases.row("p", (40, 40), 2)
    assert not releases.is_in_force("p", 50)  # that is what would be said now, but 60 may be what is heard
    heard_at(releases, lower)
    assert releases.is_in_force("p", 50)
    assert not releases.is_in_force("p", 39)


def test_nothing_of_a_former_life_counts_for_a_hold() -> None:
    releases = Releases("h", 2)
    releases.row("p", (0, 0), 0)
    releases.heard("p", (1 << 32) + 9)
    assert not releases.is_in_force("p", 50)


def test_pubends_that_hold_already_are_not_asked() -> None:
    releases = Releases("h", 1)
    heard_at(releases, releases.row("p", (0, 0), 0))
    done: list[str] = []
    assert releases.hold_all({"p": 5}, lambda: done.append("at once")) == []
    assert done == ["at once"]
    assert releases.hold_all({"p": 5, "q": 5}, lambda: done.append("later")) == ["q"]
    assert done == ["at once"]
