"""Securing a broker in one step: an authority, a certificate, users with passwords, and a context.

For a first secured broker on one machine. What is made is kept in a directory of its own, in files that only
their owner can read, and is used again at the next start.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex, token_urlsafe

from tidemark.errors import ConfigError

ADMINISTRATOR = "admin"
PIPELINE = "pipeline"
_FILES = ("ca.pem", "ca.key", "broker.pem", "broker.key", "access.toml", "overlay.key", "admin.password")

_DOCUMENT = """\
# Who may do what: docs/security.md explains it, `tidemark access plan` and `apply` change it.

[users.{admin}]
roles = ["administrator", "everything"]
password = "{admin_verifier}"

[users.{pipeline}]
roles = ["pipeline"]
password = "{pipeline_verifier}"

[roles.administrator]
administer = true

[roles.everything]
publish = [">"]
subscribe = [">"]
declare = [">"]
durable = ["*"]
publisher = ["*"]

[roles.pipeline]
pipeline = true
"""


@dataclass(frozen=True, slots=True)
class SecuredFiles:
    """What was made for a secured broker, or found from before."""

    directory: Path
    #: settings of the broker, by key
    settings: Mapping[str, str]
    #: environment in which the tools of Tidemark log in as the pipeline
    pipeline: Mapping[str, str]
    ca: Path
    password_file: Path
    #: the files were made just now
    is_new: bool


def secure_here(directory: Path, broker: str, host: str) -> SecuredFiles:
    """Make what a secured broker needs in `directory`, or use what is there.

    ConfigError if only a part is there, or if the package's extra `security` is not installed.
    """
    there = [name for name in _FILES if (directory / name).exists()]
    if there and len(there) < len(_FILES):
        lacking = next(name for name in _FILES if name not in there)
        raise ConfigError(
            f"{directory} has {there[0]} and no {lacking}: put it back, or remove the directory"
        )
    if not there:
        _make(directory, broker, host)
    return SecuredFiles(
        directory,
        {
            "security.mode": "accounts",
            "security.access": str(directory / "access.toml"),
            "security.certificate": str(directory / "broker.pem"),
            "security.key": str(directory / "broker.key"),
            "security.authority": str(directory / "ca.pem"),
            "security.overlay_key": str(directory / "overlay.key"),
        },
        {
            "TIDEMARK_USER": PIPELINE,
            "TIDEMARK_PASSWORD_FILE": str(directory / "pipeline.password"),
            "TIDEMARK_CA": str(directory / "ca.pem"),
        },
        directory / "ca.pem",
        directory / "admin.password",
        is_new=not there,
    )


def overlay_key_of(file: Path, brokers: Sequence[str]) -> Path | None:
    """Return a file with a key for the brokers of a topology that have no way to prove who they are.

    It is beside the topology's file, for its owner only, and is made if it is not there. None if the brokers
    need no key: they are open, or have a key or certificates, or there is one broker only.
    """
    from tidemark.node.config.loading import load
    from tidemark.node.security.certificates import write_new

    sections = [load(file, broker=name, environment=os.environ).security for name in brokers]
    if len(sections) < 2 or not all(
        each.mode == "accounts" and not each.overlay_key and not each.authority for each in sections
    ):
        return None
    path = file.with_name(f"{file.stem}.overlay.key").absolute()
    if not path.exists():
        write_new(path, token_hex(32).encode() + b"\n")
    return path


def _make(directory: Path, broker: str, host: str) -> None:
    from tidemark.node.security.certificates import issue, make_authority, write_new
    from tidemark.node.security.login import make_verifier

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = make_authority()
    hosts = dict.fromkeys(("127.0.0.1", "localhost", socket.gethostname(), host))
    hosts.pop("0.0.0.0", None)
    hosts.pop("::", None)
    certificate = issue(authority, broker, hosts=tuple(hosts), broker=broker)
    authority.save(directory / "ca.pem", directory / "ca.key")
    certificate.save(directory / "broker.pem", directory / "broker.key")
    passwords = {name: token_urlsafe(18) for name in (ADMINISTRATOR, PIPELINE)}
    text = _DOCUMENT.format(
        admin=ADMINISTRATOR,
        pipeline=PIPELINE,
        admin_verifier=make_verifier(passwords[ADMINISTRATOR]).text,
        pipeline_verifier=make_verifier(passwords[PIPELINE]).text,
    )
    write_new(directory / "access.toml", text.encode())
    write_new(directory / "overlay.key", token_hex(32).encode() + b"\n")
    for name, password in passwords.items():
        write_new(directory / f"{name}.password", password.encode() + b"\n")
