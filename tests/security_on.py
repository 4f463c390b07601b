"""Security for the whole suite: with `--secure`, brokers of tests have accounts and TLS, and clients log in.

What a client needs is in the environment, which every client and tool reads (docs/security.md). Brokers on a
thread of their own (`tests/live_node.py: LiveNode`) have accounts, TLS and certificates. Those that tests
speak plain frames to (`tests/node/speech.py`), and brokers in processes of their own, which take settings
from the environment, have accounts and a key of the overlay. Tests that make their own settings of security
keep them. A test that is about open brokers says so with the marker `open_broker` and a reason; the run says
how many there are.
"""

from __future__ import annotations

import os
from atexit import register
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from ssl import SSLContext, create_default_context
from tempfile import mkdtemp

#: Names the directory with the files, for the processes that tests start too.
DIRECTORY = "TIDEMARK_TESTS_SECURITY"
#: not empty while a test runs that is about open brokers
SET_ASIDE: list[bool] = []
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
    return DIRECTORY in os.environ and not SET_ASIDE


def set_aside() -> Iterator[None]:
    """Let the brokers of one test be open, for as long as the generator waits."""
    SET_ASIDE.append(True)
    yield
    SET_ASIDE.pop()


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
#: Tests among them that make their own settings of security.
_OWN = ("cli/security",)


def variables_for(test: Path) -> dict[str, str]:
    """The variables by which broker processes of a test have accounts; none while security is off."""
    inside = test.relative_to(Path(__file__).parent).as_posix()
    if not is_on() or not inside.startswith(OF_PROCESSES) or inside.startswith(_OWN):
        return {}
    return {
        f"TIDEMARK_{key.upper().replace('.', '_')}": value for key, value in settings_without_tls().items()
    }


def settings_without_tls() -> dict[str, str]:
    """The settings of a broker that plain frames are spoken to; none while security is off."""
    if not is_on():
        return {}
    path = Path(os.environ[DIRECTORY])
    return {
        "security.mode": "accounts",
        "security.access": str(path / "access.toml"),
        "security.overlay_key": str(path / "overlay.key"),
    }
