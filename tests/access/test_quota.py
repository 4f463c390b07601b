"""Quotas: what roles state, and the arithmetic of rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.access.quota import Allowance, PublishAllowance, Quota
from tidemark.access.rights import Rights
from tidemark.errors import AccessError

SECOND = 1_000_000


def test_the_largest_of_the_quotas_that_roles_state_holds() -> None:
    document = AccessDocument.parse("""
[users.alice]
roles = ["small", "large", "silent"]
[roles.small]
quota.subscriptions = 5
quota.connections = 2
[roles.large]
quota = { subscriptions = 50, held_bytes = 1000 }
[roles.silent]
""")
    assert Rights(document, Principal("alice")).quota == Quota(2, 50, None, None, 1000)
    assert Rights(document, Principal("nobody")).quota == Quota()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("quota = 5", "not a table"),
        ("quota.connections = 0", "a number from 1"),
        ("quota.connections = true", "a number from 1"),
        ('quota.connections = "5"', "a number from 1"),
        ("quota.publish_bytes = 99999999999999999999", "a number from 1"),
        ("quota.subscription = 5", "has the key 'subscription'"),
    ],
)
def test_a_mistake_in_a_quota_is_refused(line: str, reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        AccessDocument.parse(f"[roles.r]\n{line}")


def test_an_allowance_is_overdrawn_once_and_paid_back_before_more_is_spent() -> None:
    rate = Allowance(100, 0)
    rate.spend(100, 0)
    assert rate.wait(0) == 0
    rate.spend(250, 0)
    assert rate.wait(0) == 2_500_000
    assert rate.wait(2_000_000) == 500_000
    assert rate.wait(2_500_000) == 0
    # A clock that goes back gives nothing, and takes nothing.
    rate.spend(100, 2_400_000)
    assert rate.wait(1_000_000) == SECOND


def test_an_allowance_is_full_when_a_second_has_made_up_for_all() -> None:
    allowance = PublishAllowance(Quota(publish_bytes=1_000, publish_events=10), 0)
    assert allowance.is_full(0)
    allowance.spend(100, 5, 0)
    assert allowance.wait(0) == 0
    assert not allowance.is_full(SECOND // 2 - 1)
    assert allowance.is_full(SECOND // 2)


def test_bytes_and_events_are_counted_apart() -> None:
    allowance = PublishAllowance(Quota(publish_bytes=1_000, publish_events=10), 0)
    allowance.spend(3_000, 1, 0)
    assert allowance.wait(0) == 2 * SECOND
    allowance = PublishAllowance(Quota(publish_events=10), 0)
    allowance.spend(10**9, 30, 0)
    assert allowance.wait(0) == 2 * SECOND


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 2 * SECOND)), max_size=30),
)
def test_over_any_time_no_more_is_spent_than_the_rate_a_second_saved_up_and_one_piece(
    a_second: int, pieces: list[tuple[int, int]]
) -> None:
    rate, now, spent, largest = Allowance(a_second, 0), 0, 0, 0
    for amount, pause in pieces:
        now += pause + rate.wait(now + pause)
        assert rate.wait(now) == 0
        rate.spend(amount, now)
        spent, largest = spent + amount, max(largest, amount)
    assert spent <= a_second * (now / SECOND) + a_second + largest + 1
