"""Errors of ours are found in what Spark makes of them, and told in a line; others are left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidemark.errors import ConfigError
from tidemark.spark.engine import plain_errors

OF_SPARK = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback:
  File "source.py", line 59, in schema
    raise ConfigError(hint)
tidemark.errors.ConfigError: selectr: there is no such option here: did you mean selector?
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.AnalysisException
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:1)
"""
SEVERAL_LINES = """Traceback (most recent call last):
tidemark.errors.SelectorSyntaxError: no selector has the character '%' outside quotes (at character 3)
  n % 2 = 0
    ^
\tat org.apache.spark.Nothing
"""


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    plain_errors.install()


def test_our_error_is_found_in_sparks() -> None:
    hint = "selectr: there is no such option here: did you mean selector?"
    assert plain_errors.own_error_text(RuntimeError(OF_SPARK)) == hint
    assert plain_errors.own_error_text(ConfigError("is required", key="broker")) == "broker: is required"
    expected = "no selector has the character '%' outside quotes (at character 3)\n  n % 2 = 0\n    ^"
    assert plain_errors.own_error_text(RuntimeError(SEVERAL_LINES)) == expected
    assert plain_errors.own_error_text(RuntimeError("of another make")) is None
    assert plain_errors.own_error_text(RuntimeError("it says: tidemark.errors is a module")) is None


@pytest.mark.usefixtures("hooked")
def test_a_script_ends_with_one_line_that_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(OF_SPARK)
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
        where = f"{Path(__file__)}:{error.__traceback__.tb_lineno}"  # type: ignore[union-attr]
    said = capsys.readouterr().err
    assert said == f"{where}: selectr: there is no such option here: did you mean selector?\n"


@pytest.mark.usefixtures("hooked")
def test_other_errors_end_a_script_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    sys.excepthook(ValueError, ValueError("of another make"), None)
    assert capsys.readouterr().err == "ValueError: of another make\n"


def test_a_program_that_has_its_own_way_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*_: object) -> None:
        """Of the program."""

    monkeypatch.setattr(sys, "excepthook", own)
    plain_errors.install()
    assert sys.excepthook is own
