"""Settings: where they come from, what is refused, and what a topology has to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.broker.overlay.layout import Layout
from tidemark.errors import ConfigError
from tidemark.node.config.loading import brokers_of, load, show
from tidemark.node.config.settings import KEYS, SECTIONS, Config
from tidemark.node.config.units import (
    HostPort,
    RetainLimits,
    parse_address,
    parse_duration,
    parse_retain,
    parse_size,
    show_duration,
    show_retain,
    show_size,
)

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tidemark.toml"
    file.write_text(text)
    return file


def test_without_any_source_everything_is_a_default() -> None:
    config = load()
    assert config == Config()
    assert config.broker.listen == HostPort("127.0.0.1", 7676)
    assert {source for _, _, source in show(config)} == {"default"}
    assert config.topology.layout() == Layout(
        {"tidemark": ("tidemark",)}, pubends={"main": "tidemark"}, trees={"main": frozenset()}
    )


def test_a_later_source_wins_and_each_value_knows_where_it_came_from(tmp_path: Path) -> None:
    file = written(tmp_path, '[limits]\nping = "5s"\nframe = "6s"\nhandshake = "7s"\n')
    config = load(
        file,
        environment={"TIDEMARK_LIMITS_PING": "8s", "TIDEMARK_LIMITS_FRAME": "9s", "TIDEMARK_PYTHON": "x"},
        options={"limits.ping": "10s"},
    )
    assert (config.limits.ping, config.limits.frame) == (10_000_000, 9_000_000)
    assert config.provenance("limits.ping") == "--set"
    assert config.provenance("limits.frame") == "TIDEMARK_LIMITS_FRAME"
    assert config.provenance("limits.handshake") == str(file)
    assert config.provenance("limits.silence") == "default"


def test_what_is_shown_reads_in_again_as_the_same(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    for key, value, _ in show(load(options={"retention.max_retain": "7d", "broker.pubends": ["a", "b"]})):
        section, name = key.split(".")
        lines.setdefault(section, []).append(f"{name} = {value}" if value != "none" else "")
    text = "\n".join(f"[{section}]\n" + "\n".join(each) for section, each in lines.items())
    again = load(written(tmp_path, text.replace('topology = ""', "")))
    assert again.retention.max_retain == 7 * 86_400_000_000
    assert again.broker.pubends == ("a", "b")
    assert again.limits == Config().limits
    assert again.thresholds == Config().thresholds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[limits]\npnig = '1s'", "did you mean 'limits.ping'"),
        ("[limit]\nping = '1s'", "did you mean 'limits'"),
        ("limits = 3", r"write it as a table: \[limits\]"),
        ("[limits]\nping = 3", "is not text"),
        ("[limits]\nping = '3 parsecs'", "write a number and a unit"),
        ("[limits]\nconnections = 'many'", "is not a whole number"),
        ("[limits]\nconnections = 0", "less than 1"),
        ("[limits]\nping = '100s'", "limits.silence"),
        ("[storage]\ndurability = 'maybe'", "none of sync, os"),
        ("[broker]\nlisten = 'here'", "host:port"),
        ("[broker]\npubends = ['a', 'a']", "a name twice"),
        ("[retention]\nrelease_unarchived = 'yes'", "neither true nor false"),
        ("[http]\nlisten = 'x'", "http.listen"),
        ("[broker", "is not TOML"),
    ],
)
def test_a_mistake_in_a_file_is_refused_with_its_place_and_what_to_write(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(written(tmp_path, text))
    assert "tidemark.toml" in str(caught.value) or "limits.silence" in str(caught.value)


def test_a_variable_of_a_section_that_is_no_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"TIDEMARK_LOG_LEVLE.*did you mean 'log.level'"):
        load(environment={"TIDEMARK_LOG_LEVLE": "debug"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("archive.path", "s3://KEY:SECRET@bucket/x"),
        ("archive.path", "abfss://container@account/x?sig=SECRET"),
        ("tracing.endpoint", "http://user:SECRET@127.0.0.1:4318"),
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_and_not_repeated(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="settings are shown") as caught:
        load(options={key: value})
    assert "SECRET" not in str(caught.value)
    assert caught.value.key == key


def test_a_container_of_an_account_is_no_secret() -> None:
    assert load(options={"archive.path": "abfss://container@account/x"}).archive_path().startswith("abfss")


def test_a_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")


THREE = """
[storage]
durability = "os"
[brokers.east]
listen = "127.0.0.1:7001"
pubends = ["orders"]
[brokers.middle]
listen = "127.0.0.1:7002"
http = "127.0.0.1:8002"
parent = "east"
[brokers.west]
listen = "127.0.0.1:7003"
parent = "middle"
pubends = ["trades"]
data_dir = "elsewhere"
"""


def test_one_of_a_topology_gets_its_own_place_and_the_settings_of_all(tmp_path: Path) -> None:
    file = written(tmp_path, THREE)
    assert brokers_of(file) == ("east", "middle", "west")
    config = load(file, broker="middle")
    assert config.storage.durability == "os"
    assert config.http.listen == "127.0.0.1:8002"
    assert config.storage.data_dir == str(tmp_path / "tidemark-data-middle")
    assert config.topology.calls("middle") == {"east": HostPort("127.0.0.1", 7001)}
    parents = {"east": None, "middle": "east", "west": "middle"}
    assert config.topology.layout() == Layout.of_tree(parents, {"orders": "east", "trades": "west"})
    west = load(file, broker="west", environment={"TIDEMARK_BROKER_LISTEN": "0.0.0.0:9"})
    assert west.broker.listen == HostPort("0.0.0.0", 9)
    assert west.storage.data_dir == str(tmp_path / "elsewhere")


def test_a_configuration_may_point_at_a_topology(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(THREE)
    file = written(tmp_path, '[broker]\nname = "west"\ntopology = "overlay.toml"\n')
    assert load(file).broker.pubends == ("trades",)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('parent = "middle"', 'parent = "west"'), "in a circle .west -> west"),
        (('listen = "127.0.0.1:7001"', 'listen = "127.0.0.1:7001"\nparent = "west"'), "in a circle"),
        (('parent = "middle"', 'parent = "north"'), "there is no broker 'north'"),
        (('parent = "middle"', ""), "east and west have no parent"),
        (('"trades"', '"orders"'), "'orders' is hosted by 'east' already"),
        (("7003", "7002"), "where 'middle' listens already"),
        (('parent = "middle"', 'parnet = "middle"'), "did you mean 'parent'"),
        (('parent = "middle"', 'parent = "middle"\ncell = "middle"'), "is in the same cell"),
        (('listen = "127.0.0.1:7003"', ""), "say where it listens"),
    ],
)
def test_a_topology_that_is_no_tree_is_refused(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(written(tmp_path, THREE.replace(*change)), broker="middle")


def test_a_broker_of_a_topology_has_to_be_chosen_and_known(tmp_path: Path) -> None:
    file = written(tmp_path, THREE)
    with pytest.raises(ConfigError, match="choose one of east, middle, west"):
        load(file)
    with pytest.raises(ConfigError, match="did you mean 'west'"):
        load(file, broker="wset")


@given(st.integers(0, 1 << 60))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_durations_and_sizes_read_in_as_they_are_shown(value: int) -> None:
    assert parse_duration(show_duration(value)) == value
    assert parse_size(show_size(value)) == value


def test_values_are_read_as_people_write_them() -> None:
    assert parse_duration("1.5h") == 5_400_000_000
    assert parse_size("0.5 KiB") == 512
    assert parse_address("[::1]:80") == HostPort("::1", 80)
    assert str(parse_address("[::1]:80")) == "[::1]:80"
    assert parse_size("500GB") == 500 * 10**9


def test_what_is_retained_is_an_age_a_size_or_both() -> None:
    assert parse_retain("90d") == RetainLimits(age=parse_duration("90d"))
    assert parse_retain("500GB") == RetainLimits(size=parse_size("500GB"))
    for text in ("90d", "500GB", "90d, 500GB", "1TiB,2h"):
        assert parse_retain(show_retain(parse_retain(text))) == parse_retain(text)
    for wrong in ("", "90", "90d, 80d", "1GB,2GB", "90d, and more", "0d"):
        with pytest.raises(ConfigError, match=r"not understood|keeps nothing"):
            parse_retain(wrong)
    config = load(options={"archive.retain": "90d, 1GiB", "storage.data_dir": "/d"})
    assert config.archive.retain == parse_retain("90d, 1GiB")
    assert ("archive.retain", '"90d, 1GiB"', "--set") in show(config)
    assert str(config.archive_path()) == "/d/archive"
    assert str(load(options={"archive.path": "/a"}).archive_path()) == "/a"


def test_a_commands_own_defaults_give_way_to_every_source(tmp_path: Path) -> None:
    defaults = {"retention.archive": "true"}
    assert load(defaults=defaults).provenance("retention.archive") == "tidemark up"
    file = written(tmp_path, '[retention]\narchive = false\n[archive]\npath = "kept"\n')
    assert not load(file, defaults=defaults).retention.archive
    assert load(file).archive_path() == str(tmp_path / "kept")
    file = written(tmp_path, '[archive]\npath = "s3://bucket/kept"\nstorage_options = "s3.toml"\n')
    assert load(file).archive_path() == "s3://bucket/kept"
    assert load(file).archive.storage_options == str(tmp_path / "s3.toml")
    assert not load(defaults=defaults, options={"retention.archive": "false"}).retention.archive


def test_every_setting_is_documented() -> None:
    lines = DOCS.read_text().splitlines()
    rows = {
        key: f"| `{key}` | `{value}` | {KEYS[key].metadata['about']} |" for key, value, _ in show(Config())
    }
    assert rows.keys() == KEYS.keys()
    assert not [row for row in rows.values() if row not in lines]
    headings = [f"### `[{name}]` {section.__doc__}" for name, section in SECTIONS.items()]
    assert [line for line in lines if line.startswith("### ")] == headings
