"""What rules cost in the core: brokers with and without them do the same, and are compared in pairs."""

from __future__ import annotations

from functools import partial

import pytest

from tidemark.access.document import AccessDocument
from tidemark.lab.bench.security import rules
from tidemark.lab.bench.security.principals import SHARDS, document
from tidemark.lab.bench.steps.counting import CallCounter
from tidemark.lab.bench.system.steps import broker_in_process


def test_every_path_is_compared_by_cpu_with_its_error_and_by_calls() -> None:
    (section,) = rules.sections(rules.RulesEffort(100, 2, 1))
    found = {(each.case, each.metric): each.value for each in section.measurements}
    assert {case for case, _ in found} == {*rules.PATHS}
    for name in rules.PATHS:
        assert found[name, "rules, CPU"] > 0
        assert found[name, "rules, CPU, standard error"] >= 0
        # What a broker does beside the event, by its clock, differs by a few calls from time to time.
        assert 0.98 <= found[name, "rules, calls in Python"] < 1.2
        assert 0.98 <= found[name, "rules, calls in C"] < 1.2
    # The rule for what is published is held against the batch once, and no delivery calls anything for rules.
    assert found["deliver, batches of 100", "rules, calls in Python"] < 1.015


def test_an_event_that_is_published_alone_takes_few_calls_more_under_a_rule() -> None:
    """In Python 3.11 there are 12: for the client, the name of its publisher, the rule and two fields."""
    calls = []
    for has_rules in (False, True):
        found = AccessDocument.parse(document(SHARDS)) if has_rules else None
        with broker_in_process(found) as in_process:
            broker = rules.RulesBroker(in_process, found, SHARDS)
            path = rules.PATHS["publish, one event"]
            for _ in range(rules.WARM_TIMES):
                broker.take(path, broker.prepared(path))
            counter = CallCounter()
            for _ in range(5):
                counter.run(partial(broker.take, path, broker.prepared(path)))
            calls.append(counter.counts(5, 0))
    free, ruled = calls
    assert ruled.python_calls - free.python_calls <= 5 * 13
    assert ruled.c_calls - free.c_calls <= 5 * 16


def test_deliveries_that_are_too_many_for_one_turn_are_all_measured() -> None:
    with broker_in_process() as in_process:
        broker = rules.RulesBroker(in_process, None, 600)
        path = rules.PATHS["deliver, batches of 100"]
        assert broker.take(path, broker.prepared(path)) == 6_000


def test_the_median_of_numbers_has_an_error_that_outliers_do_not_raise() -> None:
    assert rules.middle([1.0]) == (1.0, 0.0)
    middle, error = rules.middle([1.0, 1.1, 0.9, 1.0, 50.0])
    assert (middle, round(error, 3)) == (1.0, 0.083)


def test_a_broker_that_delivers_to_others_than_it_should_is_not_measured() -> None:
    with broker_in_process() as in_process:
        broker = rules.RulesBroker(in_process, None, SHARDS)
        path = rules.PATHS["deliver, one event"]
        assert broker.take(path, broker.prepared(path)) == 1
        unseen = rules.PATHS["publish, one event"]
        with pytest.raises(AssertionError, match="1 deliveries, not 0"):
            broker.take(unseen, broker.prepared(path))
    assert "password" not in document(2)
    assert document(2, "verifier").count('password = "verifier"') == 3
