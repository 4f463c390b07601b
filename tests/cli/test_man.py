"""The manual page: every command and option is in it, and nothing of it is taken for a command of troff."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from tidemark.cli import main


@pytest.fixture(scope="module")
def page() -> str:
    done = CliRunner().invoke(main, ["man"])
    assert done.exit_code == 0, done.output
    return done.output


def test_every_command_and_its_options_are_there(page: str) -> None:
    for command in ("tidemark up", "tidemark topic rm", "tidemark pipeline archive"):
        assert f".SS {command} [OPTIONS]" in page
    plain = page.replace(r"\-", "-")
    for option in ("--schema TEXT|FILE", "--where", "--yes"):
        assert option in plain


def test_every_line_that_begins_like_a_command_of_troff_is_one(page: str) -> None:
    known = {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", ".ad"}
    assert {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))} <= known
    assert not re.search(r"[\x00-\x08]", page)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_troff_has_nothing_to_say_against_it(page: str) -> None:
    command = ["groff", "-man", "-Tutf8", "-ww"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
