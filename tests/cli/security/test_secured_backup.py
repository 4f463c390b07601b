"""A backup of a secured broker, restored in an empty directory and judged by the ledgers of its clients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark
from tests.cli.live_broker import running_broker
from tidemark import sync
from tidemark.cli.root import main
from tidemark.errors import RefusedError
from tidemark.lab.processes.ledger import audit
from tidemark.lab.processes.ledger_writers import DurableSubscriberLedger, PublisherLedger

pytest.importorskip("cryptography")
TOPIC = "t"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("BROKER", "USER", "PASSWORD_FILE", "CA", "CONTEXT"):
        monkeypatch.setenv(f"TIDEMARK_{name}", "")
        monkeypatch.delenv(f"TIDEMARK_{name}")


def call(*arguments: str, stdin: str | None = None) -> str:
    done = CliRunner().invoke(main, arguments, input=stdin)
    assert done.exit_code == 0, done.output
    return done.output


class Clients:
    """A publisher and a subscriber with ledgers, at whichever broker, and who may log in there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self, url: str, security: Path, user: str = "admin", password: str = "") -> sync.Client:
        secret = password or (security / "admin.password").read_text().strip()
        return sync.connect(url, user=user, password=secret, ca=str(security / "ca.pem"), publisher="pub")

    def publish(self, tm: sync.Client, first: int, last: int) -> None:
        """Publish events with these numbers, and write down what became of each."""
        ledger = PublisherLedger(self._path / "pub.jsonl", "pub", "main", TOPIC)
        for each in ledger.intend({"n": n} for n in range(first, last)):
            ledger.settle(each, tm.publish(TOPIC, each.fields, key=each.key, sequence=each.sequence))
        ledger.close()

    def consume(self, tm: sync.Client, upto: int | None) -> None:
        """Consume at least up to the event with this number; None only begins the subscription."""
        ledger = DurableSubscriberLedger(self._path / "sub.sqlite", "sub")
        with tm.subscribe(TOPIC, durable="sub", checkpoint=ledger.checkpoint, gaps=True) as sub:
            ledger.opened(TOPIC, "", ledger.checkpoint or sub.checkpoint)
            for item in sub.batches() if upto is not None else ():
                ledger.stage(item, sub.checkpoint)
                ledger.commit()
                sub.ack()
                if isinstance(item, tidemark.Batch) and upto is not None and item.column("n")[-1] >= upto:
                    break
        ledger.close()


def test_a_secured_broker_is_restored_with_its_rules_and_its_subscribers_go_on(tmp_path: Path) -> None:
    data, security, backups = tmp_path / "data", tmp_path / "data-security", tmp_path / "backups"
    clients = Clients(tmp_path)
    with running_broker(data, "--secure") as ready:
        use = ("--context", "data")
        with clients.connect(ready["url"], security) as tm:
            tm.create_topic(TOPIC, "[n: int]")
            clients.consume(tm, None)
            clients.publish(tm, 0, 10)
            clients.consume(tm, 4)
            verifier = call("access", "password", stdin="g\ng\n").strip().splitlines()[-1]
            rules = call(*use, "access", "show", "--with-verifiers", "--broker", ready["url"])
            rules += f'\n[roles.guest]\nsubscribe = ["{TOPIC}"]\n[users.guest]\nroles = ["guest"]\n'
            (tmp_path / "access.toml").write_text(f'{rules}password = "{verifier}"\n')
            call(*use, "access", "apply", str(tmp_path / "access.toml"), "--broker", ready["url"])
        made = json.loads(call(*use, "backup", str(backups), "--broker", ready["url"], "--json"))
        assert made["damage"] == []
        with clients.connect(ready["url"], security) as tm:
            clients.publish(tm, 10, 15)
    # The machine is lost. Its certificates and its first access document are kept by who made them.
    shutil.rmtree(data)
    new, kept = tmp_path / "new" / "data", tmp_path / "new" / "data-security"
    shutil.copytree(security, kept)
    shutil.rmtree(security)
    call("restore", str(backups), "--data-dir", str(new))
    with running_broker(new, "--secure") as ready:
        with clients.connect(ready["url"], kept) as tm:
            clients.publish(tm, 15, 20)
            clients.consume(tm, 19)
        # The rules that were applied while the lost broker ran are in force again.
        with (
            clients.connect(ready["url"], kept, "guest", "g") as guest,
            pytest.raises(RefusedError) as caught,
        ):
            guest.publish(TOPIC, {"n": 99}, sequence=1)
        assert caught.value.code == "denied"
        with pytest.raises(RefusedError) as caught:
            clients.connect(ready["url"], kept, "guest", "wrong")
        assert caught.value.code == "login"
    found = audit([tmp_path / "pub.jsonl"], [tmp_path / "sub.sqlite"])
    assert found.is_clean, found.as_dict()
    assert (found.total("matched"), found.total("delivered"), found.total("in_gaps")) == (20, 15, 5)
