"""The image of deploy/container/Containerfile, built and run for real with Debian's own tools.

No registry is asked: the base that the Containerfile names is made of Debian's packages and imported under
that name. What runs in the image is not kept from the machine around it (buildah's isolation "chroot"), so
that it works inside a container too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.prometheus import DEPLOY

#: Where `./run image` keeps the base and the images; without it nothing is built.
KEPT = os.environ.get("TIDEMARK_IMAGE")
IS_THERE = KEPT is not None and all(shutil.which(each) for each in ("buildah", "mmdebstrap"))
WHY_NOT = (
    "NO IMAGE: the Containerfile was not built; ./run image builds it, as root, with buildah and mmdebstrap"
)
BASE = "docker.io/library/python:3.13-slim"
#: A release of Debian whose Python is the one of the base, and what the base has of it.
RELEASE, PACKAGES = "trixie", "python3,python3-venv,python-is-python3,ca-certificates,passwd"
TAG = "tidemark:0.2.0"
CERTIFICATES = "/etc/ssl/certs"


class Images:
    """The images in one directory, and the containers of them."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        kept.mkdir(parents=True, exist_ok=True)

    def build(self) -> str:
        """Build the image; return what was said meanwhile."""
        self._make_base()
        # The machine's own certificates, so that packages can be fetched where it trusts somebody more.
        trusted = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if Path(CERTIFICATES).is_dir() else []
        file = str(DEPLOY / "container" / "Containerfile")
        return self._buildah(
            *("build", "--pull-never", "--isolation", "chroot", "--network", "host", *trusted),
            *("--file", file, "--tag", TAG, str(DEPLOY.parent)),
        )

    def settings(self) -> dict[str, Any]:
        """What the image says of how it is run."""
        found = json.loads(self._buildah("inspect", "--type", "image", TAG))
        settings: dict[str, Any] = found["OCIv1"]["config"]
        return settings

    @contextmanager
    def container(self) -> Iterator[str]:
        """A container of the image."""
        name = self._buildah("from", "--pull-never", TAG).strip()
        try:
            yield name
        finally:
            self._buildah("rm", name)

    def command(self, container: str, volume: Path, words: list[str], **variables: str) -> list[str]:
        """The command that runs what the image runs, with these words instead of its own, as its user."""
        settings = self.settings()
        given = [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
        (goal,) = settings["Volumes"]
        return [
            *self._program(),
            *(
                "run",
                "--isolation",
                "chroot",
                "--user",
                settings["User"],
                "--volume",
                f"{volume}:{goal}",
                *given,
            ),
            *(container, "--", *settings["Entrypoint"], *(words or settings["Cmd"])),
        ]

    def _make_base(self) -> None:
        if BASE in self._buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
            return
        packed = self._kept / "base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(packed)],
            check=True,
        )
        empty = self._buildah("from", "scratch").strip()
        self._buildah("add", empty, str(packed), "/")
        self._buildah("commit", "--rm", empty, BASE)
        packed.unlink()

    def _program(self) -> list[str]:
        return [
            *("buildah", "--storage-driver", "vfs"),
            *("--root", str(self._kept / "storage"), "--runroot", str(self._kept / "run")),
        ]

    def _buildah(self, *words: str) -> str:
        done = subprocess.run([*self._program(), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + (done.stderr if words[0] == "build" else "")
