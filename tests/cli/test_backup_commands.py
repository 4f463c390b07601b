"""`tidemark backup` and `tidemark restore`, as they are typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.live_broker import Tidemark, running_broker
from tidemark.cli import main


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


def test_a_broker_is_backed_up_lost_restored_and_goes_on(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    with running_broker(data) as ready:
        tidemark = Tidemark(ready["url"])
        tidemark("topic", "create", "t", "--schema", "[n: int]")
        tidemark("sub", "t", "--durable", "s", "--wait", "10ms")
        tidemark("pub", "t", "n=1")
        assert "backup of tidemark at " in tidemark("backup", str(backups))
        tidemark("pub", "t", "n=2")
        (made,) = tidemark.json("backup", str(backups), "--keep", "1", "--rate", "10MB")
        assert len(made["removed"]) == 1
        tidemark("pub", "t", "n=3")
    shutil.rmtree(data)
    assert ", whole\n" in run("restore", str(backups), "--check")
    assert "The lost broker must never be started again." in run(
        "restore", str(backups), "--data-dir", str(data)
    )
    with running_broker(data) as ready:
        tidemark = Tidemark(ready["url"])
        assert "restored from the backup" in tidemark("check", code=1)
        tidemark("pub", "t", "n=4")
        lines = tidemark.json("sub", "t", "--durable", "s", "--count", "3")
        # The third event was published after the backup: it is in the gap.
        assert [each["value"]["n"] if "value" in each else "gap" for each in lines] == [1, 2, "gap", 4]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("restore", "."), "say where to"),
        (("restore", ".", "--check", "--data-dir", "x"), "say where to"),
        (("restore", ".", "--check"), "has no whole backup; make one with tidemark backup"),
        (("backup", ".", "--rate", "fast"), "fast"),
    ],
)
def test_a_mistake_is_one_clear_line(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code in (1, 2)
    assert told in done.output
