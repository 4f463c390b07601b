"""Options: what is misspelt, missing or malformed is refused in one line that says how to write it."""

from __future__ import annotations

import pytest

from tidemark.errors import ConfigError
from tidemark.spark.options import parse_point, sink_options, source_options
from tidemark.ticks import CheckpointToken

READ = {"broker": "tidemark://127.0.0.1:7676", "topic": "trades.>"}
WRITE = {"broker": "tidemark://127.0.0.1:7676", "topic": "trades"}


def test_a_read_needs_a_broker_and_a_topic_and_has_defaults_for_the_rest() -> None:
    options = source_options(READ)
    assert (options.start.at, options.fail_on_gap, options.columns) == ("earliest", True, None)
    with pytest.raises(ConfigError, match=r'broker: is required: .option\("broker"'):
        source_options({"topic": "trades"})


def test_names_of_options_may_be_capitalised_in_any_way() -> None:
    options = source_options(
        {**READ, "FAILONGAP": "False", "maxeventspertrigger": "7", "Columns": "a, _tick"}
    )
    assert not options.fail_on_gap
    assert options.events_per_trigger_max == 7
    assert options.columns == ("a", "_tick")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("failongaps", "true", "did you mean failOnGap"),
        ("failOnGap", "yes", "neither true nor false"),
        ("maxEventsPerTrigger", "0", "not a number of events"),
        ("selector", "price >", "selector"),
        ("topic", "trades.>.x", "only be the whole last level"),
        ("broker", "http://x", "tidemark://host:port"),
        ("columns", "a,,b", "list of different columns"),
        ("start", "yesterday", "2026-01-31T12:00:00Z"),
        ("start", "tm1.garbage", "token"),
        ("end", "earliest", "ends at latest"),
        ("archive", "hdfs://host/x", "neither a mounted directory"),
        ("archive", "s3://key:secret@bucket/x", "neither credentials nor parameters"),
        ("archive", "s3:bucket", "write s3://BUCKET/FOLDER"),
        ("retrySeconds", "-1", "number of seconds"),
    ],
)
def test_what_is_wrong_is_named_and_explained(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        source_options({**READ, name: value})
    assert caught.value.key.lower() == name.lower()


def test_a_broker_with_a_password_in_its_url_is_refused_and_the_password_is_not_repeated() -> None:
    url = "tidemark://alice:hunter2@127.0.0.1:7676"
    for read in (source_options, sink_options):
        with pytest.raises(ConfigError, match="no user and no password in it") as caught:
            read({**WRITE, "broker": url})
        assert "hunter2" not in str(caught.value)


def test_a_start_is_a_word_a_token_or_a_time() -> None:
    token = CheckpointToken({"main": 5})
    assert parse_point("latest").at == "latest"
    assert parse_point(token.text()).after == token
    assert parse_point(token.to_json()).after == token
    assert parse_point("1970-01-01T00:00:01Z").tick == 999_999
    assert parse_point("1970-01-01T01:00:01+01:00") == parse_point("1970-01-01T00:00:01")


def test_a_streaming_write_stages_beside_its_checkpoint() -> None:
    assert sink_options({**WRITE, "checkpointLocation": "file:///c/p/"}).staging == "/c/p/tidemark"
    assert sink_options({**WRITE, "checkpointLocation": "hdfs://h/p", "staging": "/s"}).staging == "/s"
    with pytest.raises(ConfigError, match="neither a mounted directory"):
        sink_options({**WRITE, "checkpointLocation": "hdfs://h/p"})


def test_a_job_that_can_be_repeated_needs_a_place_that_lasts() -> None:
    assert sink_options({**WRITE, "job": "load", "staging": "/s"}).job == "load"
    with pytest.raises(ConfigError, match="staging"):
        sink_options({**WRITE, "job": "load"})
