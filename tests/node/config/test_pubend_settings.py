"""The settings of single pubends: [pubends.NAME], and what holds where a pubend has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.errors import ConfigError
from tidemark.node.config.loading import load, show
from tidemark.node.config.pubends import has_archive, pubend_of_priority, settings_of
from tidemark.node.config.units import parse_duration, parse_size
from tidemark.node.node import broker_config

FILE = """
[broker]
pubends = ["alarms", "ticker", "rest"]

[retention]
max_retain = "1d"
max_bytes = "1GiB"

[pubends.alarms]
max_retain = "none"
archive = true

[pubends.ticker]
durability = "os"
min_retain = "0s"
max_bytes = "64MiB"
"""


def written(path: Path, text: str) -> Path:
    file = path / "tidemark.toml"
    file.write_text(text)
    return file


def test_a_pubend_has_its_own_settings_and_the_general_ones_for_the_rest(tmp_path: Path) -> None:
    file = written(tmp_path, FILE)
    config = load(file, options={"pubends.rest.max_retain": "2h"})
    alarms, ticker, rest = (settings_of(config, name) for name in ("alarms", "ticker", "rest"))
    assert (alarms.max_retain, alarms.archive, alarms.durability) == (None, True, "sync")
    assert (alarms.max_bytes, ticker.max_bytes) == (parse_size("1GiB"), parse_size("64MiB"))
    assert (ticker.durability, ticker.archive, ticker.max_retain) == ("os", False, parse_duration("1d"))
    assert rest.max_retain == parse_duration("2h")
    assert has_archive(config)
    assert ("pubends.ticker.max_bytes", '"64MiB"', str(file)) in show(config)
    assert ("pubends.alarms.max_retain", "none", str(file)) in show(config)


def test_the_core_gets_a_policy_for_each_pubend(tmp_path: Path) -> None:
    core = broker_config(load(written(tmp_path, FILE)), 1)
    hour = parse_duration("1h")
    assert core.policy_of("rest") is core.pubend_policy
    kept = [core.policy_of(name).min_retain for name in ("alarms", "ticker", "rest")]
    assert kept == [0, 0, hour]  # what is archived need not be kept for newcomers
    assert [core.policy_of(name).archive for name in ("alarms", "ticker")] == [True, False]
    assert core.policy_of("ticker").max_bytes == parse_size("64MiB")
    assert core.host_policy.recall
    shorter = broker_config(load(options={"retention.min_retain": "5m"}), 1)
    assert shorter.pubend_policy.min_retain == hour // 12


def test_priorities_lead_to_pubends(tmp_path: Path) -> None:
    text = FILE.replace("[pubends.alarms]", "[pubends.alarms]\npriorities = [9, 8, 7]")
    with pytest.raises(ConfigError, match="for the priorities 0, 1, 2, 3, 4, 5, 6"):
        load(written(tmp_path, text))
    text = text.replace("[pubends.ticker]", "[pubends.ticker]\npriorities = [0, 1, 2, 3, 4, 5, 6]")
    file = written(tmp_path, text)
    config = load(file)
    assert pubend_of_priority(config, config.broker.pubends) == ("ticker",) * 7 + ("alarms",) * 3
    with pytest.raises(ConfigError, match="the priority 7 goes to 'alarms' already"):
        load(file, options={"pubends.rest.priorities": "7"})
    assert pubend_of_priority(load(), ("main",)) == ()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pubends.main.max_retian": "1d"}, "did you mean 'max_retain'"),
        ({"pubends.other.max_retain": "1d"}, "there is no pubend 'other'"),
        ({"pubends.main.max_retain": "1"}, "not understood"),
        ({"pubends.main.durability": "never"}, "none of sync, os"),
        ({"pubends.main.priorities": "3,12"}, "from 0 to 9"),
        ({"pubends.main.durability": "sync", "storage.durability": "os"}, "is for the whole disk"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_key(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        load(options=options)
    assert caught.value.key == next(iter(options))


def test_a_pubend_is_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write a table"):
        load(written(tmp_path, '[pubends]\nmax_retain = "1d"\n'))
