"""Contexts: which broker, as which user, with which files, under one name that a person can remember.

A context is a table of `contexts.toml` in the user's configuration directory, a file that only its owner can
read. It names the files with secrets, and has none in it. Using one sets the variables of the environment by
which every tool of Tidemark connects, where they are not set already.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from pathlib import Path

from tidemark.errors import ConfigError
from tidemark.storage.disk.atomic_file import replace_path
from tidemark.wire.json_objects import JsonObject

VARIABLE = "TIDEMARK_CONTEXT"
FILE = "contexts.toml"
_VARIABLES = {
    "url": "TIDEMARK_BROKER",
    "user": "TIDEMARK_USER",
    "password_file": "TIDEMARK_PASSWORD_FILE",
    "token_file": "TIDEMARK_TOKEN_FILE",
    "ca": "TIDEMARK_CA",
    "certificate": "TIDEMARK_CERTIFICATE",
    "key": "TIDEMARK_KEY",
}


@dataclass(frozen=True, slots=True)
class Context(JsonObject):
    """How to reach a broker, and as whom; "" where nothing is said."""

    url: str
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def use(self, environment: MutableMapping[str, str]) -> None:
        """Set the variables of this context, where they are not set already."""
        for name, variable in _VARIABLES.items():
            value = getattr(self, name)
            if value:
                environment.setdefault(variable, value)


def directory() -> Path:
    """Return the directory of the user's configuration."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "tidemark"


def load_contexts(where: Path | None = None) -> dict[str, Context]:
    """Return all contexts by name. ConfigError if the file cannot be understood."""
    path = (where or directory()) / FILE
    if not path.exists():
        return {}
    known = {each.name for each in fields(Context)}
    try:
        found = tomllib.loads(path.read_text()).get("contexts", {})
        return {
            name: Context(**{key: str(value) for key, value in each.items() if key in known})
            for name, each in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"cannot be read: {error}", source=str(path)) from None


def find_context(name: str, where: Path | None = None) -> Context:
    """Return a context; ConfigError, with those that there are, if there is no such one."""
    found = load_contexts(where)
    if name not in found:
        there = ", ".join(sorted(found)) or "none yet: `tidemark context add` makes one"
        raise ConfigError(f"there is no context {name!r}; there are {there}", key=VARIABLE)
    return found[name]


def save_contexts(contexts: Mapping[str, Context], where: Path | None = None) -> Path:
    """Write all contexts, in a file that only its owner can read. Returns the file."""
    target = where or directory()
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = target / FILE
    lines: list[str] = []
    for name, context in sorted(contexts.items()):
        lines.append(f"[contexts.{_quoted(name)}]")
        for each in fields(Context):
            value = getattr(context, each.name)
            if value:
                lines.append(f"{each.name} = {_quoted(value)}")
        lines.append("")
    replace_path(path, "\n".join(lines).encode(), mode=0o600)
    return path


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\{character}"
        if character in '"\\'
        else character
        if character.isprintable()
        else f"\\u{ord(character):04x}"
        for character in text
    )
    return f'"{escaped}"'
