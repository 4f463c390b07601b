"""Group commit: one sync at a time, and what comes meanwhile shares the next."""

from __future__ import annotations

from tidemark.broker.commit import GroupCommit


class Group:
    """A group commit whose every move is written down."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.done: list[str] = []
        self.commit = GroupCommit(self.tickets.append)

    def after(self, name: str) -> None:
        self.commit.after(lambda: self.done.append(name), lambda: self.done.append(f"not {name}"))


def test_while_a_sync_runs_the_next_group_gathers() -> None:
    group = Group()
    group.after("a")
    group.commit.flush()
    group.after("b")
    group.commit.flush()
    assert group.tickets == [1]
    group.commit.synced(1)
    assert group.done == ["a"]
    group.commit.flush()
    group.commit.synced(1)  # of the sync before: ignored
    assert group.done == ["a"]
    group.commit.synced(2)
    assert group.done == ["a", "b"]
    assert group.commit.is_idle


def test_nothing_waiting_asks_for_no_sync() -> None:
    group = Group()
    group.commit.flush()
    assert group.tickets == []
    assert group.commit.is_idle
    group.commit.synced(0)
    assert not group.commit.failed(0)


def test_what_an_action_adds_waits_for_the_next_sync() -> None:
    group = Group()
    group.commit.after(lambda: group.after("b"))
    group.commit.flush()
    group.commit.synced(1)
    assert group.done == []
    assert not group.commit.is_idle
    group.commit.flush()
    group.commit.synced(2)
    assert group.done == ["b"]


def test_a_sync_that_found_no_room_undoes_what_came_since_as_well() -> None:
    group = Group()
    group.after("a")
    group.commit.flush()
    group.after("b")
    assert group.commit.failed(1)
    assert group.done == ["not a", "not b"]
    assert group.commit.is_idle
    assert not group.commit.failed(1)
    group.after("c")
    group.commit.flush()
    group.commit.synced(2)
    assert group.done[-1] == "c"
