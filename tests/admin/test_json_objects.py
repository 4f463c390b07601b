"""JSON objects as dataclasses: written and read back the same, and read without trust."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tidemark.errors import WireError
from tidemark.wire import json_objects
from tidemark.wire.answers import PUBENDS, STATUS, SUBSCRIPTION, SubscriptionProgress, SubscriptionStatus
from tidemark.wire.json_objects import (
    LONG_VALUES_MAX,
    SHORT_CHARACTERS_MAX,
    JsonObject,
    dumps,
    read_arguments,
)


@dataclass(frozen=True, slots=True)
class Leaf(JsonObject):
    name: str
    size: float = 1.5


@dataclass(frozen=True, slots=True)
class Tree(JsonObject):
    count: int
    is_old: bool
    leaves: tuple[Leaf, ...]
    by_name: Mapping[str, Leaf]
    best: Leaf | None = None


TREE = Tree(3, True, (Leaf("a"), Leaf("b", 2)), {"c": Leaf("d")}, Leaf("e"))


def test_an_object_is_written_in_the_order_of_its_fields_and_read_back_the_same() -> None:
    text = (
        '{"count": 3, "is_old": true, "leaves": [{"name": "a", "size": 1.5}, {"name": "b", "size": 2}], '
        '"by_name": {"c": {"name": "d", "size": 1.5}}, "best": {"name": "e", "size": 1.5}}'
    )
    assert dumps(TREE) == text
    assert json.dumps(TREE.to_json()) == text
    assert Tree.from_json(json.loads(text)) == TREE


def test_keys_of_a_newer_broker_are_skipped_and_those_with_a_default_may_be_absent() -> None:
    found = TREE.to_json() | {"colour": "red"}
    del found["best"]
    assert Tree.from_json(found) == Tree(TREE.count, TREE.is_old, TREE.leaves, TREE.by_name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": "3"}, "count is '3' and not of type int"),
        ({"count": True}, "count is True and not of type int"),
        ({"is_old": 1}, "is_old is 1 and not of type bool"),
        ({"leaves": {}}, "leaves is not a JSON array"),
        ({"leaves": [{"name": "a"}, {}]}, "leaves.1 has no 'name'"),
        ({"by_name": {"c": {"name": None}}}, "by_name.c.name is None and not of type str"),
        ({"by_name": []}, "by_name is not a JSON object"),
        ({"best": 5}, "best is not a JSON object"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_place(change: dict[str, object], said: str) -> None:
    with pytest.raises(WireError, match=said):
        Tree.from_json(TREE.to_json() | change)


def test_an_answer_that_lacks_a_key_is_a_clear_error() -> None:
    with pytest.raises(WireError, match="the whole has no 'broker'"):
        STATUS.read({"version": "1.0"})
    with pytest.raises(WireError, match="0 has no 'position'"):
        PUBENDS.read([{"pubend": "p"}])
    with pytest.raises(WireError, match="the whole is not a JSON array"):
        PUBENDS.read("nothing")


def test_a_subscription_of_a_broker_that_knows_no_recalls_is_read() -> None:
    progress = SubscriptionProgress(1, 2, None, 3, True)
    status = SubscriptionStatus("s", True, False, "t", "", False, 0, "tm1.x", {"p": progress})
    found = status.to_json()
    del found["pubends"]["p"]["recall"]
    assert SUBSCRIPTION.read(found) == status


@pytest.mark.parametrize("characters", [SHORT_CHARACTERS_MAX + 100, 1 << 20])
@pytest.mark.parametrize("piece", ["[],", "0,", "{},", '"",', '"\\"",', '""'])
def test_long_arguments_of_many_values_are_refused_before_they_are_made(
    piece: str, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"a": [' + piece * (characters // len(piece)) + "0]}"
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(WireError, match="at most 1024 values"):
        read_arguments(text)


@pytest.mark.parametrize("piece", ["[],", '"",', '""'])
def test_of_many_values_only_the_first_are_looked_at(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    class Counted:
        def search(self, text: str, at: int) -> re.Match[str] | None:
            nonlocal looks
            looks += 1
            return re.compile(r'[\[{,"]').search(text, at)

    monkeypatch.setattr(json_objects, "_BEGINNING", Counted())
    with pytest.raises(WireError, match="at most 1024 values"):
        read_arguments('{"a": [' + piece * 1_000_000 + "0]}")
    assert looks <= 3 * LONG_VALUES_MAX + 2


@pytest.mark.parametrize("text", ['{"a": "' + "x" * 100_000, '{"a": "\n' + "x" * 100_000 + '"}'])
def test_long_arguments_with_a_text_that_is_none_are_refused(text: str) -> None:
    with pytest.raises(WireError, match="are not JSON"):
        read_arguments(text)


def test_a_long_text_full_of_brackets_is_one_value() -> None:
    given = {"base": 1, "text": '[["\\\n,{' * 100_000}
    assert read_arguments(json.dumps(given)) == given


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_arguments_have_finite_numbers(number: str) -> None:
    with pytest.raises(WireError):
        read_arguments(f'{{"a": [{number}]}}')
