"""The commands about access, certificates and contexts, and a broker secured in one command."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.live_broker import Spoken, running_broker
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS
from tidemark.access.document import AccessDocument
from tidemark.access.verifier import Verifier
from tidemark.admin.contexts import find_context
from tidemark.admin.starting import BrokerReady
from tidemark.cli.brokers.serve import _welcome
from tidemark.cli.root import main
from tidemark.errors import NotConnectedError
from tidemark.node.workers.layout import FIRST_PORT, PORT_STEP
from tidemark.sync import Client, connect

pytest.importorskip("cryptography")
#: Parameters that only sound like secrets: they name files, or are a checkpoint token.
NO_SECRETS = {"password_file", "token_file", "token"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("BROKER", "USER", "PASSWORD_FILE", "CA", "CONTEXT"):
        # Commands that use a context set variables, which monkeypatch takes back only if it knows of them.
        monkeypatch.setenv(f"TIDEMARK_{name}", "")
        monkeypatch.delenv(f"TIDEMARK_{name}")


def call(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
    done = CliRunner().invoke(main, arguments, input=stdin)
    assert done.exit_code == code, done.output
    return done


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_broker_is_secured_in_one_command_and_used_by_its_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with running_broker(data, "--secure") as ready:
        assert ready["url"].startswith("tidemark+tls://")
        made = data.parent / "data-security"
        assert {
            mode_of(made / name) for name in ("ca.key", "broker.key", "access.toml", "admin.password")
        } == {0o600}
        call("sub", "hello", "--broker", ready["url"], "--count", "1", code=1)
        monkeypatch.setenv("TIDEMARK_BROKER", ready["url"])
        use = ("--context", "data")
        call(*use, "topic", "create", "t", "--schema", "[n: int]")
        call(*use, "pub", "t", "n=5")
        shown = call(*use, "access", "show").output
        assert "[users.admin]" in shown
        assert "SCRAM" not in shown
        whole = call(*use, "access", "show", "--with-verifiers").output
        document = AccessDocument.parse(whole)
        assert document.users["admin"].password is not None
        file = tmp_path / "access.toml"
        file.write_text(
            whole
            + '\n[roles.guest]\nsubscribe = ["t"]\nread."t" = "n > 3"\n[users.guest]\nroles = ["guest"]\n'
        )
        planned = json.loads(call(*use, "access", "plan", str(file), "--json", code=2).output)
        assert {(each["change"], each["kind"], each["name"]) for each in planned["changes"]} == {
            ("added", "role", "guest"),
            ("added", "user", "guest"),
        }
        assert planned["misfits"] == []
        assert "version 1" in call(*use, "access", "apply", str(file)).output
        tried = json.loads(call(*use, "access", "test", "guest", "t", "--where", "n < 9", "--json").output)
        assert tried["sees"] == "n < 9 AND n > 3"
        assert not tried["publish"]
        call(*use, "access", "test", "guest", "secrets", code=1)
        file.write_text(
            whole + '\n[roles.guest]\nsubscribe = ["t"]\nread."t" = "m = :user"\nhide."t" = ["n"]\n'
        )
        (wrong,) = json.loads(call(*use, "access", "plan", str(file), "--json", code=2).output)["misfits"]
        assert (wrong["rule"], wrong["topic"]) == ('roles.guest.read."t"', "t")
        assert "no field `m`" in wrong["reason"]
        refused = call(*use, "access", "apply", str(file), code=1).output
        assert 'roles.guest.read."t" does not fit the topic t, which is closed by it' in refused
        assert "version 2" in call(*use, "access", "apply", str(file), "--force").output
        assert "closed by it" in call(*use, "access", "plan").output


def test_no_secret_is_in_the_list_of_processes_or_in_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_broker(data, "--secure") as ready:
        made = data.parent / "data-security"
        secrets = [file.read_text().strip() for file in sorted(made.glob("*.password"))]
        assert len(secrets) == 2
        call("--context", "data", "topic", "create", "t", "--schema", "[n: int]", "--broker", ready["url"])
        settings = call("--context", "data", "config", "show", "--broker", ready["url"]).output
        assert "security.access" in settings
        told = [settings.encode()]
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # the process has just ended
                told.append(found.read_bytes())
        told += [file.read_bytes() for file in sorted(data.rglob("*")) if file.is_file()]
        assert any(b"tidemark" in each for each in told)
        assert any(b'"what": "login"' in each for each in told), "the audit log is among them"
        for secret in secrets:
            assert not any(secret.encode() in each for each in told)


def test_no_command_takes_a_secret_as_an_argument() -> None:
    def parameters(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.params
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                each = command.get_command(click.Context(command), name)
                assert each is not None
                yield from parameters(each)

    found = {each.name or "" for each in parameters(main)}
    assert {"context", "password_file"} <= found
    suspects = {name for name in found if any(word in name for word in ("password", "secret", "token"))}
    assert suspects <= NO_SECRETS, "a secret comes from a file, or is asked for"


def test_a_secured_broker_says_how_to_log_in_to_try_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "tidemark+tls://127.0.0.1:7000"
    (tmp_path / "secret").write_text("x")
    call("context", "add", "mine", "--url", url, "--user", "me", "--password-file", str(tmp_path / "secret"))
    _welcome(BrokerReady("b", url, None, "data", None))
    assert "try     tidemark --context mine sub hello\n" in capsys.readouterr().out
    _welcome(BrokerReady("b", "tidemark://127.0.0.1:7000", None, "data", None))
    assert "tidemark sub hello --broker tidemark://127.0.0.1:7000" in capsys.readouterr().out


def test_a_second_start_uses_what_the_first_one_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_broker(data, "--secure"):
        before = (data.parent / "data-security" / "ca.pem").read_bytes()
    with running_broker(data, "--secure"):
        assert (data.parent / "data-security" / "ca.pem").read_bytes() == before


def ports_of_two_workers() -> int:
    """The first of the ports of two workers, which nobody else gets."""
    tries = (free_ports(PORT_STEP + 2) for _ in range(100))
    return next(ports[0] for ports in tries if ports[-1] - ports[0] == PORT_STEP + 1)


def connected(url: str) -> Client:
    """A client of a broker that is being started."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return connect(url)
        except NotConnectedError:
            assert time.monotonic() < end, "it never listens"
            time.sleep(0.1)


@pytest.mark.slow
def test_workers_are_secured_in_one_command_and_prove_themselves_to_each_other(tmp_path: Path) -> None:
    data, port = tmp_path / "data", ports_of_two_workers()
    given = ("--workers", "2", "--secure", "--no-pipeline", "--json", "--console", "")
    workers = Spoken("up", *given, "--listen", f"127.0.0.1:{port}", "--data-dir", str(data))
    try:
        drawn, use = json.loads(workers.line()), json.loads(workers.line())
        own = (port + FIRST_PORT, port + PORT_STEP)
        first, second = (f"tidemark+tls://127.0.0.1:{at}" for at in own)
        assert [each["url"] for each in drawn["brokers"]] == [first, second]
        assert use["url"] == f"tidemark+tls://127.0.0.1:{port}"
        # The first worker's certificate names neither of them: they share the key.
        find_context("data").use(os.environ)
        with connected(first) as one, connected(second) as other:
            one.create_topic("t", "[n: int]")
            with other.subscribe("t") as sub:
                while len(sub.checkpoint) < 2:
                    time.sleep(0.02)
                one.publish("t", {"n": 5})
                assert next(iter(sub))["n"] == 5
        # Behind the one address TLS and the login are those of a worker.
        with connected(use["url"]) as any_of_them:
            assert any_of_them.broker in ("worker-1", "worker-2")
            any_of_them.publish("t", {"n": 6})
    finally:
        workers.process.terminate()
        workers.close()


def test_certificates_are_made_shown_and_never_overwritten(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path / "certs"))
    call("cert", "issue", "east", "--broker", "--host", "127.0.0.1", *where, code=2)
    call("cert", "ca", *where)
    call("cert", "issue", "east", "--broker", *where, code=2)
    call("cert", "issue", "east", "--broker", "--host", "127.0.0.1", *where)
    call("cert", "issue", "alice", "--user", *where)
    assert mode_of(tmp_path / "certs" / "east.key") == 0o600
    said = json.loads(call("cert", "show", str(tmp_path / "certs" / "east.pem"), "--json").output)
    assert said["names"] == ["127.0.0.1", "tidemark:broker:east"]
    assert "is there already" in call("cert", "ca", *where, code=1).output
    assert "no certificate" in call("cert", "show", str(Path(__file__)), code=1).output


def test_a_password_becomes_a_verifier_and_is_not_echoed() -> None:
    done = call("access", "password", stdin="hunter2\nhunter2\n")
    assert "hunter2" not in done.output
    Verifier.parse(done.output.strip().splitlines()[-1])


def test_contexts_are_kept_without_secrets_in_them(tmp_path: Path) -> None:
    call("context", "add", "prod", "--url", "tidemark+tls://b:7676", "--user", 'al"ice', stdin="hunter2\n")
    made = find_context("prod")
    assert made.user == 'al"ice'
    assert Path(made.password_file).read_text() == "hunter2\n"
    kept = tmp_path / "config" / "tidemark"
    assert mode_of(kept / "contexts.toml") == mode_of(Path(made.password_file)) == 0o600
    assert "hunter2" not in (kept / "contexts.toml").read_text()
    assert "prod" in call("context", "list").output
    call("context", "rm", "prod")
    assert not Path(made.password_file).exists()
    assert "there is no context 'prod'" in call("--context", "prod", "topic", "list", code=1).output
    assert "is not a broker's URL" in call("context", "add", "x", "--url", "http://b", code=1).output


def test_a_context_leads_to_no_other_file_and_its_password_is_for_its_owner_only(tmp_path: Path) -> None:
    kept = tmp_path / "config" / "tidemark"
    kept.mkdir(parents=True)
    (tmp_path / "config" / "other.password").write_text("mine")
    (tmp_path / "secret").write_text("x")
    for name in ("../other", "/etc/x", "a/b", ".."):
        files = ("--password-file", str(tmp_path / "secret"))
        call("context", "add", name, "--url", "tidemark://b:7676", "--user", "u", *files, code=2)
    (kept / "prod.password").write_text("of before")
    (kept / "prod.password").chmod(0o644)
    call("context", "add", "prod", "--url", "tidemark+tls://b:7676", "--user", "u", stdin="hunter2\n")
    assert mode_of(kept / "prod.password") == 0o600
    assert (tmp_path / "config" / "other.password").read_text() == "mine"
