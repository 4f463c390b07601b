"""What brokers of one machine get by themselves when they are secured."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidemark.admin.securing import overlay_key_of
from tidemark.node.config.loading import brokers_of
from tidemark.node.security.link_proof import LinkKey
from tidemark.node.workers.layout import lay_out

ACCOUNTS = {"security.mode": "accounts", "security.access": "/nowhere/access.toml"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODE", "ACCESS", "OVERLAY_KEY"):
        monkeypatch.delenv(f"TIDEMARK_SECURITY_{name}", raising=False)


def test_brokers_with_accounts_and_no_other_proof_get_a_key_that_stays(tmp_path: Path) -> None:
    file = lay_out(str(tmp_path), "127.0.0.1:9000", 2, ACCOUNTS)
    key = overlay_key_of(file, brokers_of(file))
    assert key == tmp_path / "workers.overlay.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    LinkKey.load(str(key))
    before = key.read_bytes()
    assert overlay_key_of(file, brokers_of(file)) == key
    assert key.read_bytes() == before


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (2, {}),
        (1, ACCOUNTS),
        (2, {**ACCOUNTS, "security.overlay_key": "/nowhere/overlay.key"}),
        (2, {**ACCOUNTS, "security.authority": "/nowhere/ca.pem"}),
    ],
)
def test_brokers_that_need_no_key_get_none(tmp_path: Path, count: int, settings: dict[str, str]) -> None:
    file = lay_out(str(tmp_path), "127.0.0.1:9000", count, settings)
    assert overlay_key_of(file, brokers_of(file)) is None
    assert not list(tmp_path.glob("*.key"))
