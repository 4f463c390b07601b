"""The units of the page about systemd are ones that systemd understands, and their commands are ours."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli import main

PAGE = Path(__file__).parent.parent.parent / "docs/howto/systemd.md"
INSTALLED = "/opt/tidemark/bin/tidemark"
_UNIT = re.compile(r"^Write this as `/etc/systemd/system/([\w.-]+)`:\n\n```ini\n(.*?)^```$", re.M | re.S)


def units() -> dict[str, str]:
    return dict(_UNIT.findall(PAGE.read_text()))


def test_the_page_has_units_for_the_broker_the_archive_the_console_and_backups() -> None:
    assert set(units()) == {
        "tidemark.service", "tidemark-archive.service", "tidemark-backup.service", "tidemark-backup.timer",
        "tidemark-console.service",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    here = tmp_path / "tidemark"
    here.write_text(f"#!{sys.executable}\n")
    here.chmod(0o755)
    for name, text in units().items():
        (tmp_path / name).write_text(text.replace(INSTALLED, str(here)))
    files = [str(tmp_path / name) for name in units()]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "tidemark" in line]
    assert (done.returncode, said) == (0, [])


def test_every_command_of_a_unit_has_only_options_that_there_are() -> None:
    commands = [
        shlex.split(line.removeprefix(f"ExecStart={INSTALLED} "))
        for text in units().values()
        for line in text.splitlines()
        if line.startswith("ExecStart=")
    ]
    assert len(commands) == 4
    for arguments in commands:
        words = [each for each in arguments if not each.startswith("/etc")]
        shown = CliRunner().invoke(
            main, [*words[:2], "--help"] if words[0] == "pipeline" else [words[0], "--help"]
        )
        assert shown.exit_code == 0
        assert all(each in shown.output for each in arguments if each.startswith("--"))
