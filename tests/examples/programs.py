"""Brokers and example programs in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tests.cli.live_broker import Spoken
from tests.waiting import PATIENCE_SECONDS

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@contextmanager
def broker(directory: Path, *options: str) -> Iterator[str]:
    """The URL of a broker that `tidemark up` has started."""
    process = Spoken(
        "up", "--json", "--listen", "127.0.0.1:0", "--http", "", "--data-dir", str(directory / "data"),
        "--set", "thresholds.silence=50ms", *options, cwd=directory,
    )  # fmt: skip
    try:
        yield json.loads(process.line())["url"]
    finally:
        process.process.terminate()
        process.close()


@contextmanager
def started(name: str, *arguments: str, directory: Path) -> Iterator[Spoken]:
    """An example that runs until the block ends, if it has not ended by itself."""
    process = Spoken(*arguments, command=(sys.executable, str(EXAMPLES / name)), cwd=directory)
    try:
        yield process
    finally:
        process.process.kill()
        process.close()


def run(name: str, *arguments: str, directory: Path) -> list[str]:
    """The lines that an example prints, once it has ended well."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def loaded(name: str) -> ModuleType:
    """An example as a module, for tests that call its main()."""
    spec = spec_from_file_location(f"example_{name.removesuffix('.py')}", EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
