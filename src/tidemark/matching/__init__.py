"""Matching: which subscribers want which events, without I/O (docs/selectors.md, docs/matching.md).

`audience` is the entry for brokers and for deep catch-up: members with a topic pattern and a selector, over
all topics. It keeps one `matcher` for each topic, which matches a batch against all selectors of the topic
through its `index`; `single` matches an event that comes alone. `topics` has the topic patterns.

A selector is parsed and checked by `selectors`, whose `Selector` is the entry for one selector. `forms`
brings it into a normal form that can be indexed and compared (covering, summaries), `vectors` evaluates it
over whole batches, and `explain` describes it to people.
"""
