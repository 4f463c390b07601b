"""What all tests share: a Spark session for those that need a JVM, and how much work a run does."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import imports, java_classes, schedule, security_on

#: A JVM that a test starts lives for seconds: without the optimising compiler and with the plain collector it
#: takes about half the CPU. Every process that a test starts inherits the variable.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m")

# A process that a test starts archives without Spark, unless the test names the other engine.
os.environ.setdefault("TIDEMARK_ARCHIVE_ENGINE", "light")

# Tests start hundreds of Python processes. Where bytecode must not be written, each of them would compile all
# of Tidemark anew, which takes a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Workers of Spark import PySpark from where it is installed (`tests/spark_workers/sitecustomize.py`).
_STARTS = str(Path(__file__).with_name("spark_workers"))
os.environ["PYTHONPATH"] = os.pathsep.join([_STARTS, *filter(None, [os.environ.get("PYTHONPATH")])])

#: Examples that hypothesis tries in a test that asks for more. They are the same in every run; with
#: `--hypothesis-profile=thorough`, a test tries as many as it asks for.
EXAMPLES_MAX = 60
# Whether a test passes depends neither on luck nor on how fast the machine is.
_SUITE = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _SUITE)
settings.register_profile("thorough", _SUITE)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """With `--secure`, brokers have accounts and TLS, except where a test makes its own settings of that."""
    parser.addoption("--secure", action="store_true", help="brokers of tests have accounts and TLS")
    parser.addoption("--long", action="store_true", help="run the tests that are marked long too")
    parser.addoption("--measure", action="store_true", help="write tests/seconds.json anew")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the files: by default, workers begin with the files that have the most tests."""
    if config.getoption("--secure"):
        security_on.turn_on()
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(schedule.Stopwatch())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before tests are collected, the workers of a whole run share what has to be compiled."""
    imports.import_in_turns(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where whole files are given to workers, the tests decide which worker gets which."""
    return schedule.Schedule(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long begin first; otherwise one of them would run alone at the end."""
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items[:] = schedule.in_order(items)
    if not settings.get_current_profile_name().startswith("thorough"):
        for item in items:
            _bound_examples(item)


def pytest_collection_finish() -> None:
    """Leave the modules and the collected tests out of what the collector of garbage looks at.

    They live as long as the process; to look at all of them each time took a twelfth of the CPU of the tests.
    """
    gc.collect()
    gc.freeze()


def _bound_examples(item: pytest.Item) -> None:
    test: Any = getattr(item, "obj", None)
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if asked is not None and asked.max_examples > EXAMPLES_MAX:
        test._hypothesis_internal_use_settings = settings(asked, max_examples=EXAMPLES_MAX)


@pytest.fixture(autouse=True, scope="module")
def _secured_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--secure`, the broker processes that the tests of a module start have accounts."""
    with pytest.MonkeyPatch.context() as environment:
        if request.node.get_closest_marker("open_broker") is None:
            for variable, value in security_on.variables_for(request.path).items():
                environment.setenv(variable, value)
        yield


@pytest.fixture(autouse=True)
def _open_brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With `--secure`, a test that is about open brokers has them all the same, and is counted."""
    marker = request.node.get_closest_marker("open_broker")
    if marker is None or not security_on.is_on():
        yield
        return
    request.node.user_properties.append(("open_broker", marker.kwargs["reason"]))
    for variable in security_on.variables_for(request.path):
        monkeypatch.delenv(variable, raising=False)
    yield from security_on.set_aside()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With `--secure`, say how many tests had open brokers, and why."""
    stats = terminalreporter.stats
    called = [each for kind in ("passed", "failed") for each in stats.get(kind, []) if each.when == "call"]
    said = [pair for each in called for pair in each.user_properties]
    reasons = Counter(reason for key, reason in said if key == "open_broker")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} tests had open brokers: {reason}", yellow=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first test that needs a JVM there is an archive of the classes that it will load."""
    if item.get_closest_marker("spark"):
        java_classes.share(item.config.cache.mkdir("java-classes"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark session; starting it takes seconds, so there is one for all tests of a process."""
    from tidemark.spark.engine.session import session

    scratch = tmp_path_factory.mktemp("spark")
    running = session(
        "tests", **{"spark.sql.warehouse.dir": str(scratch / "warehouse"), "spark.local.dir": str(scratch)}
    )
    yield running
    running.stop()
