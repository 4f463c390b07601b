"""A second chance for the few tests that failed in a whole run, which tells flickers from failures.

`./run test` loads this plugin of pytest when it runs everything. If one to RETRIES_MAX tests failed, each of
them runs once more, by itself, one after the other. A test that fails again fails the run. A test that passes
then is a flicker: the run does not fail because of it, the closing lines name it, and it has to be mended. On
GitHub, where nobody reads the lines of a run that passed, a warning on the page of the run names it too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

#: More failures than these are no bad luck: then none of them is tried again.
RETRIES_MAX = 5
#: The category of flickers in pytest's closing line.
FLICKERED = "flickered"
#: the categories of a test that failed while it ran, and of one that failed before or after
_FAILED = ("failed", "error")


def pytest_configure(config: pytest.Config) -> None:
    """The process that reports tries again; the workers of xdist only run tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SecondChance(config), "second-chance")


class _SecondChance:
    """Owns what is tried again; changes what pytest's reporter counts, and the exit status of the session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        #: the reports of failures of tests that passed when they were tried again
        self._flickers: list[pytest.TestReport] = []

    # The innermost wrapper: xdist's workers have ended by then, and the reporter has not yet summed up.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        reporter = self._reporter()
        failed = _names_of_failed(reporter)
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not failed or session.shouldfail:
            return
        if len(failed) > RETRIES_MAX:
            reporter.write_line(f"\n{len(failed)} tests failed: too many to try them again", red=True)
            return
        reporter.write_line("")
        for name in failed:
            reporter.write_sep("=", f"once more by itself: {name}", yellow=True)
            if _passes(name, self._config.rootpath, reporter):
                self._flickers += _move_to_flickers(reporter, name)
        if not _names_of_failed(reporter):
            session.exitstatus = pytest.ExitCode.OK

    # The outermost wrapper: what follows the `yield` comes after the reporter's own summary.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Generator[None]:
        reporter = self._reporter()
        for report in self._flickers:
            reporter.write_sep("_", f"FLICKER {report.nodeid}", yellow=True)
            report.toterminal(reporter._tw)
            for title, text in report.sections:
                reporter.write_sep("-", title)
                reporter.write_line(text.rstrip("\n"))
        yield
        names = list(dict.fromkeys(report.nodeid for report in self._flickers))
        if os.environ.get("GITHUB_ACTIONS"):
            for name in names:
                reporter.write_line(
                    f"::warning title=FLICKER::{name} failed, then passed by itself. Mend it."
                )
        if names:
            reporter.write_sep(
                "!", "FLICKERS: these failed, then passed by themselves. Mend them.", yellow=True
            )
            for name in names:
                reporter.write_line(f"FLICKER {name}", yellow=True)

    def _reporter(self) -> pytest.TerminalReporter:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(reporter, pytest.TerminalReporter)
        return reporter


def _names_of_failed(reporter: pytest.TerminalReporter) -> Sequence[str]:
    """The node ids of the tests that failed, each once, in the order in which they failed."""
    reports = [report for category in _FAILED for report in reporter.stats.get(category, [])]
    return list(dict.fromkeys(report.nodeid for report in reports))


def _passes(name: str, root: Path, reporter: pytest.TerminalReporter) -> bool:
    """Run one test in a process of its own, and show what it said. Return whether it passed."""
    command = [sys.executable, "-m", "pytest", "-n0", "-q", name]
    ended = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    reporter.write_line(ended.stdout.rstrip("\n"))
    return ended.returncode == pytest.ExitCode.OK


def _move_to_flickers(reporter: pytest.TerminalReporter, name: str) -> list[pytest.TestReport]:
    """Count the test once, as a flicker, whatever it was counted as. Return the reports of its failures."""
    failures = []
    for category in (*_FAILED, "passed"):
        reports = reporter.stats.pop(category, [])
        kept = [report for report in reports if report.nodeid != name]
        if category in _FAILED:
            failures += [report for report in reports if report.nodeid == name]
        if kept:
            reporter.stats[category] = kept
    reporter._add_stats(FLICKERED, failures[:1])
    return failures
