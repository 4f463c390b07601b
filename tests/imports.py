"""Each worker of a whole run begins to import the tests with another file.

What has no bytecode yet is then compiled by the first worker that imports it, and not by all of them at once:
pytest rewrites the assertions of every file of tests before it compiles that file, which takes long.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path

import pytest


def import_in_turns(config: pytest.Config) -> None:
    """In a worker of a run without paths, import all files of tests that the run will collect."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    ignored = [Path(each).absolute() for each in config.getoption("ignore") or ()]
    found = sorted(Path(__file__).parent.rglob("test_*.py"))
    files = [each for each in found if not any(each.is_relative_to(path) for path in ignored)]
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // int(worker["workercount"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for file in files[first:] + files[:first]:
            _compile(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def _compile(module: str) -> None:
    """Import a module of tests, for its bytecode, whatever comes of it.

    A file may raise anything while it is imported, if it is wrong, and skips itself where a library that it
    needs is missing (`pytest.importorskip`). Python then forgets the module. Pytest imports the file again
    when it is collected, and reports the error or the skip. An interrupt ends the run.
    """
    try:
        import_module(module)
    except (Exception, pytest.skip.Exception):
        return
