"""The audit's plan: the queries, as text, that turn lines of ledgers into what became of every event.

`{name}` in a query is the table of that name, which an earlier step made:

lines of publishers ─> published ─┬─> due ─┬─> compared ─> judged ─> ordered ─> summary, fault keys, bars
lines of subscribers ─> delivered ┘        └─> missing ─> lost (or in a gap)

Each step is a shuffle by key, or a sort within one publisher or subscriber and pubend. No step pairs all
events with all subscribers, and only counts and a few keys come to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tidemark.message.types import Path
from tidemark.spark.audit.ledger_lines import DAMAGED, VALUE_COLUMNS, value_column
from tidemark.spark.audit.ledgers import LedgerSubscription
from tidemark.spark.audit.report import KEYS_SHOWN_MAX, PERCENTILES
from tidemark.spark.audit.selectors import SelectorGroup
from tidemark.spark.sql.text import string_text
from tidemark.ticks.tick import TICK_MAX, TICK_MIN

#: Spark parses the digits of a number before its sign, so the least BIGINT cannot be written as a literal.
_MIN = f"({TICK_MIN + 1}L - 1L)"
_MAX = f"{TICK_MAX}L"

#: Bars of the histogram of deliveries; bars of the histogram of latency for each doubling of the latency.
DELIVERY_BARS = 60
BARS_A_DOUBLING = 2
#: The ranks of the percentiles are off by 1 / this at most.
PERCENTILE_ACCURACY = 10_000

#: The lines of publishers that count: what is about to be published, and acknowledgements.
OF_PUBLISHERS = "what = 'publish' OR (what = 'outcome' AND outcome = 'acked')"

#: Each event that a publisher was about to publish, with the tick in its acknowledgement, `acked_tick`. The
#: acknowledgement of an event that is in no ledger is a row without a publisher.
PUBLISHED = """
SELECT key, event.*, acked_tick
FROM (
  SELECT key,
    max_by(struct(publisher, sequence, pubend, topic, fields, time, matched), struct(ledger, at))
      FILTER (WHERE what = 'publish') AS event,
    max_by(tick, struct(ledger, at)) FILTER (WHERE what = 'outcome') AS acked_tick
  FROM {lines}
  GROUP BY key)
"""

#: The tick of each event, as the first line of any subscriber has it.
DELIVERED = """
SELECT key, min_by(tick, struct(ledger, at)) AS tick FROM {lines} WHERE what = 'event' GROUP BY key
"""

#: The highest sequence number that each publisher got acknowledged.
LAST_ACKED = """
SELECT publisher, max(sequence) AS sequence FROM {lines} WHERE what = 'outcome' GROUP BY publisher
"""

#: Is each event logged, and at which tick? Sequence numbers have no gaps, so an acknowledgement covers all
#: numbers before it; and a delivery proves that the event was logged.
LOGGED = """
SELECT p.*, coalesce(p.acked_tick, d.tick) AS tick,
  coalesce(p.sequence <= last.sequence, false) OR d.key IS NOT NULL AS is_logged
FROM {published} p
LEFT JOIN {delivered} d ON p.key = d.key
LEFT JOIN {last_acked} last ON p.publisher = last.publisher
"""

#: Each event lies in `(after, upto]`, by its own tick or by those of its publisher's events around it. A
#: window that runs forward from each row would be quadratic, so the next tick is found by running backwards.
BOUNDED = f"""
SELECT key, publisher, sequence, pubend, topic, fields, time, matched, tick, is_logged,
  CASE WHEN tick IS NULL THEN coalesce(tick_before, {_MIN}) ELSE tick - 1 END AS after,
  coalesce(tick, tick_next - (place - place_next), {_MAX} - (place - 1)) AS upto
FROM (
  SELECT *,
    last(tick, true) OVER (PARTITION BY publisher, pubend ORDER BY sequence
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS tick_before,
    last(tick, true) OVER backwards AS tick_next,
    last(CASE WHEN tick IS NOT NULL THEN place END, true) OVER backwards AS place_next
  FROM (
    SELECT *, row_number() OVER (PARTITION BY publisher, pubend ORDER BY sequence DESC) AS place
    FROM {{logged}})
  WINDOW backwards AS (PARTITION BY publisher, pubend ORDER BY sequence DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
"""

#: Each event in a subscriber's ledger beside its publication. Where the two texts differ, the fields may
#: still be equal (1 and 1.0), so both texts come along, as `mine` and `theirs`.
COMPARED = """
SELECT ledger, at, key, pubend, tick, time, publisher, sequence, published_time, is_due, is_doubtful,
  CASE WHEN is_doubtful THEN fields END AS mine,
  CASE WHEN is_doubtful THEN published_fields END AS theirs
FROM (
  SELECT *, is_due AND fields <> published_fields AS is_doubtful
  FROM (
    SELECT e.ledger, e.at, e.key, e.pubend, e.tick, e.time, e.fields, p.publisher, p.sequence,
      p.time AS published_time, p.fields AS published_fields,
      coalesce(array_contains(p.expected, e.ledger) AND e.topic = p.topic AND e.pubend = p.pubend
        AND e.tick = p.tick, false) AS is_due
    FROM {lines} e LEFT JOIN {due} p ON e.key = p.key
    WHERE e.what = 'event' AND array_contains({subscribed}, e.ledger)))
"""

#: The first right line of an event is its delivery, later ones are duplicates, and the others are wrong.
JUDGED = """
SELECT *,
  CASE WHEN at = first_right THEN 'delivered' WHEN at > first_right THEN 'duplicated' ELSE 'wrong' END
    AS verdict
FROM (
  SELECT *, min(CASE WHEN is_right THEN at END) OVER (PARTITION BY ledger, key) AS first_right
  FROM {compared})
"""

#: A delivery is late if its tick is not above all earlier ones of the pubend, or its sequence number is not
#: above all earlier ones of the publisher.
ORDERED = """
SELECT ledger, at, key, tick, time, verdict,
  verdict = 'delivered'
    AND (coalesce(tick <= tick_before, false) OR sequence <= coalesce(sequence_before, 0)) AS is_late,
  CASE WHEN verdict = 'delivered' THEN time - published_time END AS latency
FROM (
  SELECT *,
    max(CASE WHEN verdict = 'delivered' THEN tick END) OVER (PARTITION BY ledger, pubend ORDER BY at
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS tick_before,
    max(CASE WHEN verdict = 'delivered' THEN sequence END) OVER (PARTITION BY ledger, pubend, publisher
      ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS sequence_before
  FROM {judged})
"""

#: Events that are logged, that a subscriber was to get, and that it did not get.
MISSING = """
SELECT explode(array_except(expected, coalesce(ledgers, array()))) AS ledger, p.key, pubend, after, upto
FROM {due} p
LEFT JOIN (
  SELECT key, collect_set(ledger) AS ledgers FROM {ordered} WHERE verdict = 'delivered' GROUP BY key) d
  ON p.key = d.key
WHERE is_logged
"""

#: A missing event is in a gap if a gap that starts at or before it reaches to its end. Gaps and events are
#: sorted together, so that many of both cost no more than the sort; of the gaps so far, the furthest decides.
LOST = """
SELECT ledger, key, after, CASE WHEN covered.upto >= upto THEN covered.reason END AS reason
FROM (
  SELECT *, max(gap) OVER (PARTITION BY ledger, pubend ORDER BY after, is_event
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS covered
  FROM (
    SELECT ledger, pubend, base AS after, CAST(NULL AS BIGINT) AS upto, CAST(NULL AS STRING) AS key,
      false AS is_event, struct(upto, coalesce(reason, '') AS reason) AS gap
    FROM {lines} WHERE what = 'gap'
    UNION ALL
    SELECT ledger, pubend, after, upto, key, true, NULL FROM {missing}))
WHERE is_event
"""

#: One row for each subscriber, and one without a ledger for all of them together.
SUMMARY = f"""
SELECT ledger, count_if(verdict = 'delivered') AS delivered, count_if(verdict = 'duplicated') AS duplicated,
  count_if(verdict = 'wrong') AS wrong, count_if(is_late) AS out_of_order,
  count(latency) AS latencies, min(latency) AS least, max(latency) AS most,
  percentile_approx(latency, array({", ".join(map(str, PERCENTILES.values()))}), {PERCENTILE_ACCURACY})
    AS percentiles,
  min(CASE WHEN verdict = 'delivered' THEN time END) AS first_time,
  max(CASE WHEN verdict = 'delivered' THEN time END) AS last_time,
  min(CASE WHEN verdict = 'delivered' THEN tick END) AS first_tick,
  max(CASE WHEN verdict = 'delivered' THEN tick END) AS last_tick
FROM {{ordered}}
GROUP BY GROUPING SETS ((ledger), ())
"""

MISSING_BY_REASON = "SELECT ledger, reason, count(*) AS events FROM {lost} GROUP BY ledger, reason"
GAPS_BY_REASON = """
SELECT ledger, coalesce(reason, '') AS reason, count(*) AS gaps FROM {lines} WHERE what = 'gap' GROUP BY ALL
"""
TOTALS = """
SELECT count(*) AS published, count_if(is_logged) AS acknowledged, min(key) FILTER (WHERE publisher IS NULL)
  AS unpublished
FROM {due}
"""
FAULT_KEYS = f"""
SELECT ledger, fault, key
FROM (
  SELECT *, row_number() OVER (PARTITION BY ledger, fault ORDER BY at, key) AS place
  FROM (
    SELECT ledger, verdict AS fault, at, key FROM {{ordered}} WHERE verdict <> 'delivered'
    UNION ALL
    SELECT ledger, 'out_of_order', at, key FROM {{ordered}} WHERE is_late
    UNION ALL
    SELECT ledger, 'lost', after, key FROM {{lost}} WHERE reason IS NULL))
WHERE place <= {KEYS_SHOWN_MAX}
ORDER BY ledger, fault, place
"""
LATENCY_BARS = f"""
SELECT CAST(floor(log2(greatest(latency, 1)) * {BARS_A_DOUBLING}) AS INT) AS bar, count(*) AS events
FROM {{ordered}} WHERE latency IS NOT NULL GROUP BY bar
"""


def delivery_bars(column: str, base: int, upto: int) -> str:
    """The query for deliveries in DELIVERY_BARS bars of equal width, by the column `time` or `tick`."""
    width = (upto - base) / DELIVERY_BARS or 1.0
    return f"""
SELECT CAST(least(floor(({column} - {base}L) / {width!r}D), {DELIVERY_BARS - 1}) AS INT) AS bar,
  count(*) AS events
FROM {{ordered}} WHERE verdict = 'delivered' AND {column} IS NOT NULL GROUP BY bar
"""


def value_types(paths: Sequence[Path]) -> str:
    """The query for an unreadable line, if there is one, and for the types of the values at `paths`."""
    kinds = [
        f"bool_or({value_column(number, kind)} IS NOT NULL) AS {value_column(number, kind)}"
        for number in range(len(paths))
        for kind in VALUE_COLUMNS
    ]
    broken = f"min(struct(ledger, at, reason)) FILTER (WHERE what = '{DAMAGED}') AS broken"
    return f"SELECT {', '.join((broken, *kinds))} FROM {{lines}}"


def matched(conditions: Mapping[int, str]) -> str:
    """An expression: the numbers of the selector groups whose condition holds for a publication."""
    tests = [f"CASE WHEN {condition} THEN {number} END" for number, condition in conditions.items()]
    return f"array_compact(CAST(array({', '.join(tests)}) AS ARRAY<INT>))"


def expected(groups: Iterable[SelectorGroup], subscriptions: Sequence[LedgerSubscription]) -> str:
    """An expression: the ledgers of the subscribers that were to get a publication.

    A subscriber was to get it if it matches and may lie beyond the subscriber's start.
    """
    who = _constant([group.ledgers for group in groups], "ARRAY<ARRAY<INT>>")
    last = max((each.ledger for each in subscriptions), default=-1)
    begun: list[dict[str, int]] = [{} for _ in range(last + 1)]
    for each in subscriptions:
        begun[each.ledger] = each.start
    starts = _constant(begun, "ARRAY<MAP<STRING, BIGINT>>")
    ledgers = f"flatten(transform(matched, number -> {who}[number]))"
    return f"filter({ledgers}, one -> upto > coalesce(try_element_at({starts}[one], pubend), {_MIN}))"


def subscribed(subscriptions: Iterable[LedgerSubscription]) -> str:
    """An expression: the ledgers that have a subscription."""
    return _constant([each.ledger for each in subscriptions], "ARRAY<INT>")


def _constant(value: object, type_: str) -> str:
    return f"from_json({string_text(json.dumps(value))}, '{type_}')"
