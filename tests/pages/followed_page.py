"""FollowedPage: runs what a page prints, in the order of the page, and compares what comes out.

A block that follows the words "Write this as `name.py`:" is written to that file. In a console
block a line that begins with `$ ` is a command, and the lines behind it are what it prints; a line `...`
stands for any number of lines, and ` ...` at the end of a line for the rest of it. A command that starts a
broker goes on beside the others. The port of the page is replaced by a free one, so that pages can be
followed beside each other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS, eventually

PORT = "7676"
STARTS = "tidemark up"
_BLOCK = re.compile(
    r"(?:Write this as `(?P<name>[\w.]+)`:\n\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass
class FollowedPage:
    """One page, followed in one directory."""

    page: Path
    directory: Path
    port: int
    #: commands that were run, for the test to see that there were some
    commands: list[str] = field(default_factory=list)
    _brokers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self) -> None:
        """Do everything that the page says; AssertionError where something else comes out."""
        try:
            for block in self._blocks():
                if block["name"]:
                    (self.directory / block["name"]).write_text(block["text"])
                elif block["kind"] == "console":
                    self._run_all(block["text"])
        finally:
            for broker in self._brokers:
                broker.kill()
                broker.wait()

    def _blocks(self) -> Iterator[re.Match[str]]:
        text = self.page.read_text().replace(f":{PORT}", f":{self.port}")
        yield from _BLOCK.finditer(text)

    def _run_all(self, text: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            self.commands.append(command)
            printed = self._start(command) if command.startswith(STARTS) else self._run(command)
            assert _fits(printed, expected), f"$ {command}\n{printed}\ninstead of\n{expected}"

    def _run(self, command: str) -> str:
        # `pkill` on the page ends the reader's broker; here it must end the broker of this page only.
        command = command.replace('-f "tidemark up"', f'-f "tidemark up .*127.0.0.1:{self.port} "')
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr, f"$ {command}\n{done.stderr}"
        return done.stdout

    def _start(self, command: str) -> str:
        output = self.directory / f"broker-{len(self._brokers)}.log"
        options = f" --listen 127.0.0.1:{self.port} --http 127.0.0.1:0"
        with output.open("wb") as file:
            self._brokers.append(
                subprocess.Popen(
                    f"exec {command}{options}",
                    shell=True,
                    cwd=self.directory,
                    env=self._environment(),
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                )
            )
        ready = "stop    Ctrl-C"
        eventually(
            lambda: ready in output.read_text() or self._brokers[-1].poll() is not None, output.read_text
        )
        printed = output.read_text()
        assert ready in printed, printed
        return printed

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "PYTHONUNBUFFERED": "1",
            "TIDEMARK_BROKER": f"tidemark://127.0.0.1:{self.port}",
        }


def _fits(printed: str, expected: str) -> bool:
    """Whether the lines are those expected, where `...` stands for any number of lines."""
    parts = [_pattern(part.strip("\n")) for part in re.split(r"^\.\.\.$", expected, flags=re.M)]
    return re.fullmatch(r"\n?(?:.*\n?)*?".join(parts), printed.strip("\n")) is not None


def _pattern(text: str) -> str:
    """The lines as a pattern; ` ...` at the end of one stands for its rest."""
    return "\n".join(
        re.escape(line.removesuffix(" ...")) + (".*" if line.endswith(" ...") else "")
        for line in text.split("\n")
    )
