"""Security for the whole suite: with `--secure`, brokers of tests have accounts and TLS, and clients log in.

What a client needs is in the environment, which every client and tool reads (docs/security.md). Brokers in
this process (`tests/live_node.py`) have accounts, TLS and certificates. Brokers in processes of their own,
which take settings from the environment, have accounts and a key of the overlay. Tests that speak plain
frames to a broker, and those that concern security or settings themselves, make their own brokers.
"""

from __future__ import annotations

import os
from atexit import register
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from ssl import SSLContext, create_default_context
from tempfile import mkdtemp

#: Names the directory with the files, for the processes that tests start too.
DIRECTORY = "TIDEMARK_TESTS_SECURITY"
USER, PASSWORD = "tester", "a-password-for-tests"
DOCUMENT = """
[roles.everything]
subscribe = [">"]
publish = [">"]
declare = [">"]
durable = ["*"]
publisher = ["*"]
monitor = true
administer = true
pipeline = true
[users.tester]
roles = ["everything"]
password = "{password}"
"""


def turn_on() -> None:
    """Make an authority and a user, and have every client of this process and its children log in."""
    if DIRECTORY in os.environ:
        return
    from tidemark.node.security.certificates import make_authority
    from tidemark.node.security.login import make_verifier

    path = Path(mkdtemp(prefix="tidemark-tests-security-"))
    register(rmtree, path, ignore_errors=True)
    make_authority().save(path / "ca.pem", path / "ca.key")
    (path / "access.toml").write_text(DOCUMENT.format(password=make_verifier(PASSWORD).text))
    (path / "password").write_text(PASSWORD)
    (path / "overlay.key").write_text(token_hex(32))
    os.environ[DIRECTORY] = str(path)
    os.environ["TIDEMARK_USER"] = USER
    os.environ["TIDEMARK_PASSWORD_FILE"] = str(path / "password")
    os.environ["TIDEMARK_CA"] = str(path / "ca.pem")


def is_on() -> bool:
    """Whether brokers of tests have accounts."""
    return DIRECTORY in os.environ


def scheme() -> str:
    """How URLs of brokers begin."""
    return "tidemark+tls" if is_on() else "tidemark"


def http() -> tuple[str, SSLContext | None]:
    """How addresses of HTTP begin, and whom a client of it believes."""
    if not is_on():
        return "http", None
    return "https", create_default_context(cafile=os.environ["TIDEMARK_CA"])


def settings_of(name: str = "b1") -> dict[str, str]:
    """The settings of a broker of this name; none while security is off."""
    if not is_on():
        return {}
    from tidemark.node.security.certificates import Issued, issue

    path = Path(os.environ[DIRECTORY])
    files = path / f"broker-{name}"
    if not files.exists():
        authority = Issued((path / "ca.pem").read_bytes(), (path / "ca.key").read_bytes())
        made = issue(authority, name, hosts=["127.0.0.1", "localhost"], broker=name, days=2)
        made.save(files / "cert.pem", files / "key.pem")
    return {
        "security.mode": "accounts",
        "security.access": str(path / "access.toml"),
        "security.authority": str(path / "ca.pem"),
        "security.certificate": str(files / "cert.pem"),
        "security.key": str(files / "key.pem"),
        "security.http_token": str(path / "password"),
    }


#: Directories with tests whose brokers are processes of their own.
OF_PROCESSES = ("chaos", "cli", "examples", "lab", "pages", "queue", "spark")
#: Tests among them that make their own settings of security, or see a console that asks for no login.
_OWN = ("cli/security", "cli/test_up_console.py")


def variables_for(test: Path) -> dict[str, str]:
    """The variables by which broker processes of a test have accounts; none while security is off."""
    inside = test.relative_to(Path(__file__).parent).as_posix()
    if not is_on() or not inside.startswith(OF_PROCESSES) or inside.startswith(_OWN):
        return {}
    path = Path(os.environ[DIRECTORY])
    return {
        "TIDEMARK_SECURITY_MODE": "accounts",
        "TIDEMARK_SECURITY_ACCESS": str(path / "access.toml"),
        "TIDEMARK_SECURITY_OVERLAY_KEY": str(path / "overlay.key"),
    }
