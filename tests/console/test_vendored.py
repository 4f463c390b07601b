"""Files of others are exactly those that were released, and each has its licence beside it."""

from __future__ import annotations

import hashlib
import re

from tidemark.console.pages.site import HERE

VENDOR = HERE / "static" / "vendor"
ROW = re.compile(r"^\| (\S+) \| \S+ \| (\S+) \| \w+, (\S+) \| ([0-9a-f]{64}) \|$", re.MULTILINE)


def test_every_vendored_file_has_its_checksum_and_licence() -> None:
    rows = {
        name: (version, licence, digest)
        for name, version, licence, digest in ROW.findall((VENDOR / "README.md").read_text())
    }
    scripts = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert rows.keys() == scripts
    for name, (version, licence, digest) in rows.items():
        assert version in name
        assert (VENDOR / licence).read_text().strip()
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
