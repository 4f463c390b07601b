"""ThinNetwork: two network namespaces of this machine, joined by one link of a given rate.

Processes that are started in a namespace see nothing but that link, so nothing else of the machine is
touched. It takes root and the tools ip and tc of iproute2. Both namespaces go when the block is left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from types import TracebackType
from typing import Any

#: The addresses of the two ends; only inside the namespaces.
NEAR_HOST, FAR_HOST = "10.77.0.1", "10.77.0.2"
#: Bytes that the link sends at once, and milliseconds for which a packet may wait before it is dropped.
BURST_BYTES = 5_000
QUEUE_MS = 400
#: An address of a network card that nobody has, and how large packets usually are, in bytes.
NOBODY = "02:00:00:00:00:01"
MTU_BYTES = 1_500


def problem() -> str | None:
    """Return why this machine cannot make namespaces; None if it can."""
    if os.geteuid() != 0:
        return "it needs root, for network namespaces"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"it needs {' and '.join(missing)} of iproute2"
    try:
        with ThinNetwork(1_000_000):
            return None
    except subprocess.CalledProcessError as error:
        return f"this machine makes no network namespaces: {(error.stderr or '').strip()}"


class ThinNetwork:
    """Two namespaces, `near` and `far`, and the link between them."""

    def __init__(self, bits_per_second: int) -> None:
        self._bits_per_second = bits_per_second
        self.near, self.far = (f"tidemark-{os.getpid()}-{side}" for side in ("near", "far"))

    def __enter__(self) -> ThinNetwork:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def command(self, namespace: str, *arguments: str) -> list[str]:
        """Return the command that runs `arguments` in a namespace, in the process that it is started as."""
        return ["ip", "netns", "exec", namespace, *arguments]

    def sent_bytes(self, namespace: str) -> int:
        """Return how many bytes a namespace has sent over the link, with the headers of all packets."""
        found: Any = json.loads(_run("ip", "-n", namespace, "-j", "-s", "link", "show", "dev", "thin"))
        return int(found[0]["stats64"]["tx"]["bytes"])

    def cut(self, namespace: str, *, is_cut: bool) -> None:
        """Let nothing through in both directions, or let it through again; nobody is told."""
        _run("ip", "-n", namespace, "link", "set", "thin", "down" if is_cut else "up")

    def mute(self, namespace: str, *, is_mute: bool) -> None:
        """Let nothing arrive that a namespace sends, while it hears the other; or let it arrive again."""
        other = FAR_HOST if namespace == self.near else NEAR_HOST
        how = ("replace", other, "lladdr", NOBODY, "nud", "permanent") if is_mute else ("del", other)
        _run("ip", "-n", namespace, "neigh", *how, "dev", "thin")

    def narrow(self, namespace: str, largest: int = MTU_BYTES) -> None:
        """Drop packets to a namespace that have more than `largest` bytes, without telling anybody."""
        other = self.far if namespace == self.near else self.near
        # A packet that the sender's kernel has yet to divide would pass whole.
        _run("ip", "-n", other, "link", "set", "thin", "gso_max_segs", "1")
        _run("ip", "-n", namespace, "link", "set", "thin", "mtu", str(largest))

    def _make(self) -> None:
        for namespace in (self.near, self.far):
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        # Both ends are made inside of the namespaces: the machine's own interfaces never see them.
        _run(
            "ip", "-n", self.near, "link", "add", "name", "thin", "type", "veth",
            "peer", "name", "thin", "netns", self.far,
        )  # fmt: skip
        for namespace, host in ((self.near, NEAR_HOST), (self.far, FAR_HOST)):
            _run("ip", "-n", namespace, "address", "add", f"{host}/24", "dev", "thin")
            _run("ip", "-n", namespace, "link", "set", "thin", "up")
            rate, burst, latency = f"{self._bits_per_second}bit", str(BURST_BYTES), f"{QUEUE_MS}ms"
            _run(
                "tc", "-n", namespace, "qdisc", "add", "dev", "thin", "root",
                "tbf", "rate", rate, "burst", burst, "latency", latency,
            )  # fmt: skip

    def _remove(self) -> None:
        for namespace in (self.near, self.far):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
