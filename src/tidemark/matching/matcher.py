"""The batch matcher: which subscribers want which events of a topic.

A matcher has one index for all subscriptions of a topic. It takes a batch of events as columns and returns
one number for each row: the row's match set, the set of subscribers whose selectors are true for it. Equal
selectors share a rule. A rule is one or more boxes in the space of keys (`index.ranges`), which are found
through a trie of grid cells (`index.trie`). A condition that is no box is evaluated once a batch
(`index.conditions`). Without conditions, events whose keys were met before cost a look-up (`index.key_memo`).

Matching is exact: three-valued logic as `matching.selectors.tree` defines it, on any value, whatever was
added and removed before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from tidemark.matching.index.arrays import Index, Words, keep_freed_memory
from tidemark.matching.index.boxes import Side
from tidemark.matching.index.conditions import Conditions, Truths
from tidemark.matching.index.index import BoxIndex
from tidemark.matching.index.key_memo import KeyMemo
from tidemark.matching.index.keys import Keys
from tidemark.matching.index.match_sets import MatchSets
from tidemark.matching.index.plans import BoxPlan, ClauseDescription, declared_type, explain_plans, plans_of
from tidemark.matching.index.rules import Rules
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import Node
from tidemark.matching.vectors.vector import compile_condition
from tidemark.message.batches.columns import ColumnSource, FieldTypes

SUBSCRIBER_MAX = 2**32 - 1


class IndexDescription(TypedDict):
    """How the index finds the events of a selector."""

    selector: str
    clauses: list[ClauseDescription]


class Matcher:
    """All subscriptions of one topic."""

    def __init__(self, fields: FieldTypes) -> None:
        keep_freed_memory()
        self._fields = fields
        self._keys = Keys()
        #: shared with the index, which files boxes under conditions; the matcher acquires and releases them
        self._conditions = Conditions()
        self._index = BoxIndex(self._conditions)
        self._rules = Rules()
        self._sets = MatchSets()
        self._memo = KeyMemo()
        #: subscriber -> rule
        self._rule_of: dict[int, int] = {}

    def __len__(self) -> int:
        """Number of subscribers."""
        return len(self._rule_of)

    def add(self, subscriber: int, selector: Selector) -> None:
        """Index a subscriber's selector, which was checked against the fields; it replaces an earlier one."""
        assert 0 <= subscriber <= SUBSCRIBER_MAX
        number = self._rules.number(selector.tree)
        if number is None:
            plans = plans_of(selector.tree, self._fields)
            number = self._rules.create(selector.tree)
            self._index_rule(number, plans)
        elif self._rule_of.get(subscriber) == number:
            return
        if subscriber in self._rule_of:
            self.remove(subscriber)
        self._rules.subscribe(number, subscriber)
        self._memo.forget()
        self._rule_of[subscriber] = number

    def remove(self, subscriber: int) -> None:
        """Remove a subscriber, which must have been added."""
        number = self._rule_of.pop(subscriber)
        self._memo.forget()
        if self._rules.unsubscribe(number, subscriber) == 0:
            self._unindex_rule(number)
            self._rules.remove(number)

    def match(self, columns: ColumnSource) -> NDArray[np.uint32]:
        """set[row]: the number of the match set of each event; 0 when no subscriber wants it.

        `members` knows the sets of the latest call; earlier ones may have been forgotten. DecodeError if a
        field that some selector reads is damaged.
        """
        if self._sets.renew():
            self._memo.forget()
        truths = Truths(self._conditions, columns)
        keys = self._keys.read(truths)
        if keys is None:
            return self._intern(*self._match_one_by_one(truths), columns.count)
        if self._conditions.in_use or not self._memo.is_worth(keys):
            return self._match_keys(keys, truths)
        few = self._memo.few(keys)
        if few is not None:
            return few
        rows, numbers = self._memo.look_up(keys)
        if None in numbers:
            # One row for each of the keys that are new.
            new = {rows[row]: row for row, number in enumerate(numbers) if number is None}
            found: list[int] = self._match_keys(keys[:, list(new.values())], truths).tolist()
            self._memo.learn(list(new), found)
            learnt = dict(zip(new, found, strict=True))
            numbers = [
                learnt[row] if number is None else number for row, number in zip(rows, numbers, strict=True)
            ]
        return np.array(numbers, np.uint32)

    def _match_keys(self, keys: Words, truths: Truths) -> NDArray[np.uint32]:
        """keys[column, row] -> set[row], by the index."""
        parts = self._index.match(keys, truths)
        sets = [self._intern(part.rows, part.rules, part.count) for part in parts]
        return sets[0] if len(sets) == 1 else np.concatenate((*sets, np.zeros(0, np.uint32)))

    def members(self, match_set: int) -> NDArray[np.uint32]:
        """The subscribers in a set that `match` returned, ascending. A number always means the same set."""
        return self._sets.members(match_set)

    def members_of(self, match_sets: NDArray[np.uint32]) -> tuple[Index, NDArray[np.uint32]]:
        """match_sets[n], none of them 0 -> which[m], subscriber[m]: the members of many sets, in no order.

        which[m] is an index into `match_sets`.
        """
        return self._sets.members_of(match_sets)

    def rules(self, most: int) -> list[tuple[Node, NDArray[np.uint32]]] | None:
        """Every distinct selector with its subscribers, in no order; None if there are more than `most`."""
        if len(self._rules) > most:
            return None
        return [(tree, self._rules.subscribers(number)) for number, tree in self._rules]

    def retype(self, fields: FieldTypes) -> None:
        """Go by new types of the fields: index the selectors anew that read a field whose type has changed.

        Call this after the schema has evolved and before any `add` or `match` with the new types, also when
        `fields` is the same object with other answers.
        """
        changed = {
            path for path in self._rules.paths() if declared_type(path, fields) != self._keys.declared(path)
        }
        concerned = self._rules.reading(changed)
        for number in concerned:
            self._unindex_rule(number)
        self._fields = fields
        for number in concerned:
            self._index_rule(number, plans_of(self._rules.tree(number), fields))

    def explain(self, selector: Selector) -> IndexDescription:
        """How the index would find the events of a selector if it were added now.

        Constraints count as access where there are more than a few dozen boxes.
        """
        known = self._rules.number(selector.tree)
        plans = plans_of(selector.tree, self._fields)
        number = self._rules.create(selector.tree) if known is None else known
        if known is None:
            self._index_rule(number, plans)
        boxes = self._rules.boxes(number)
        ways = [{self._keys.path(column) for column in self._index.way_to(box)} for box in boxes]
        if known is None:
            self._unindex_rule(number)
            self._rules.remove(number)
        return {"selector": render(selector.tree), "clauses": explain_plans(plans, ways, self._fields)}

    @property
    def memory_bytes(self) -> int:
        """The memory of the index without the selectors: exact for arrays, an estimate for the rest."""
        parts = self._index.nbytes + self._conditions.nbytes + self._rules.nbytes + self._sets.nbytes
        parts += self._memo.nbytes
        return parts + sys.getsizeof(self._rule_of) + 64 * len(self._rule_of)

    def _index_rule(self, number: int, plans: Sequence[BoxPlan]) -> None:
        self._memo.forget()
        for path in self._rules.reads(number):
            self._keys.watch(path, declared_type(path, self._fields))
        boxes: list[int] = []
        used: list[int] = []
        for plan in plans:
            sides = [
                Side(self._keys.acquire(path, part), low, high) for path, (part, low, high) in plan.ranges
            ]
            conditions = tuple(self._conditions.acquire(tree, self._fields) for tree in plan.conditions)
            boxes.append(self._index.add(number, sides, conditions))
            used += conditions
        self._rules.place(number, boxes, tuple(used))

    def _unindex_rule(self, number: int) -> None:
        self._memo.forget()
        for box in self._rules.boxes(number):
            for column in self._index.remove(box):
                self._keys.release(column)
        for condition in self._rules.conditions(number):
            self._conditions.release(condition)
        for path in self._rules.reads(number):
            self._keys.unwatch(path)

    def _intern(self, rows: Index, rules: Index, count: int) -> NDArray[np.uint32]:
        """rows[n], rules[n] of `count` rows -> set[row]."""
        rows, rules = self._rules.distinct(rows, rules)
        digests = self._rules.digests(rows, rules, count)
        return self._sets.intern(digests, lambda wanted: self._rules.members(rows, rules, wanted, count))

    def _match_one_by_one(self, columns: ColumnSource) -> tuple[Index, Index]:
        """row[n], rule[n] by evaluating each rule, for columns that are not of the declared types: slow.

        It is needed only for batches of a schema version that `retype` has not been called for yet.
        """
        rows, rules = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, tree in self._rules:
            rows.append(np.flatnonzero(compile_condition(tree, self._fields).matched(columns)))
            rules.append(np.full(len(rows[-1]), number))
        return np.concatenate(rows), np.concatenate(rules)
