"""Credentials and endpoints of object stores: the storage options of delta-rs, and which of them are secret.

Options come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`,
`AZURE_STORAGE_ACCOUNT_NAME`, ...), which both libraries read by themselves, or from a TOML file that only its
owner may read. They never are on a command line, in an option of a query, or in a setting.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tidemark.errors import ConfigError

#: Options of the client rather than of the store, by the names that delta-rs gives them.
_CLIENT = (
    *("allow_http", "allow_invalid_certificates"),
    *("connect_timeout", "timeout", "proxy_url", "user_agent"),
)
_BOOLEANS = ("allow_http", "allow_invalid_certificates")
#: Options of delta-rs about repetitions, which are made here as they are made elsewhere.
_RETRIES = ("max_retries", "retry_timeout", "backoff_config.")
_PUBLIC = re.compile(
    r"region|endpoint|allow|timeout|bucket|path|style|retries|backoff|user_agent|account_name"
)
_KEY = "storage-options"
#: A value that is shorter than this would blot out half of a message.
_SECRET_CHARACTERS_MIN = 6
OPTIONS_MAX = 64
_OTHERS = 0o077


def load_storage_options(file: str | os.PathLike[str]) -> dict[str, str]:
    """The options in a TOML file. Raises ConfigError if it is not one, or if others may read it."""
    path = Path(file)
    try:
        mode = path.stat().st_mode
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key=_KEY) from None
    except ValueError:
        # The error of the parser would quote what is there.
        raise ConfigError(f'{path} is not TOML: write lines like aws_region = "..."', key=_KEY) from None
    if mode & _OTHERS:
        raise ConfigError(f"others may read {path}, which has secrets: chmod 600 {path}", key=_KEY)
    return checked_options(found)


def checked_options(given: Mapping[str, object]) -> dict[str, str]:
    """The options as text, with names in lower case. Raises ConfigError, which quotes no value."""
    if len(given) > OPTIONS_MAX:
        raise ConfigError(f"there are {len(given)} storage options, {OPTIONS_MAX} at most", key=_KEY)
    found = {}
    for name, value in given.items():
        if isinstance(value, bool):
            found[name.lower()] = str(value).lower()
        elif isinstance(value, str | int):
            found[name.lower()] = str(value)
        else:
            raise ConfigError(f"{name} is not a text", key=_KEY)
    return found


def store_config(options: Mapping[str, str]) -> dict[str, str]:
    """Of the options, those that say which store and who asks."""
    return {
        name: value
        for name, value in options.items()
        if _client_name(name) is None and not name.startswith(_RETRIES)
    }


def client_config(options: Mapping[str, str]) -> dict[str, object]:
    """Of the options, those that say how the store is called; the environment is asked for some, too."""
    found: dict[str, object] = {}
    for option in ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP"):
        if option in os.environ:
            found["allow_http"] = _is_true(os.environ[option])
    for name, value in options.items():
        client = _client_name(name)
        if client is not None:
            found[client] = _is_true(value) if client in _BOOLEANS else value
    return found


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """The text without the values of options that may be secret, wherever those come from."""
    secrets = [value for name, value in options.items() if not _PUBLIC.search(name)]
    secrets += [
        value
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")) and not _PUBLIC.search(name.lower())
    ]
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_CHARACTERS_MIN:
            text = text.replace(secret, "***")
    return text


def _client_name(option: str) -> str | None:
    for prefix in ("", "aws_", "google_", "azure_"):
        if option.startswith(prefix) and option.removeprefix(prefix) in _CLIENT:
            return option.removeprefix(prefix)
    return None


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
