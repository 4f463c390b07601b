"""Where archives and staged files are: the one place that knows what a location is.

A location is a directory that is mounted under the same name wherever the pipeline runs, or a folder of an
object store. What a user writes becomes a location here, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidemark.errors import ConfigError
from tidemark.spark.stores.folder import Folder
from tidemark.spark.stores.mounted import MountedFolder
from tidemark.spark.stores.objects import ObjectFolder
from tidemark.spark.stores.storage_options import checked_options

#: What a user may write -> the scheme that is meant.
_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfss"}
#: Of a checkpoint's directory, where the rows of its query are staged.
_STAGING = "tidemark"

#: A location as functions take it.
Place = str | Path | Folder


def location(text: str) -> str:
    """The absolute path of a directory or of a `file:` URI, or the URL of a folder in an object store.

    Raises ConfigError for other file systems.
    """
    scheme, colon, rest = text.partition(":")
    if colon and len(scheme) > 1 and "/" not in scheme:
        if scheme.lower() in _SCHEMES:
            return _url(_SCHEMES[scheme.lower()], rest)
        if scheme.lower() != "file":
            raise ConfigError(
                f"{text!r} is neither a mounted directory nor in an object store: give a directory, or a URL "
                "that begins with s3://, gs:// or abfss://"
            )
        text = "/" + rest.lstrip("/")
    if not text:
        raise ConfigError("a path is not empty")
    # Absolute, because a task in another process or on another machine has another working directory.
    return os.path.abspath(text)


def folder_at(place: Place, options: Mapping[str, object] | None = None) -> Folder:
    """The folder at a location; `options` are storage options, beside those of the environment."""
    if isinstance(place, Folder):
        return place
    if isinstance(place, Path):
        return MountedFolder(place)
    text = location(place)
    if "://" not in text:
        return MountedFolder(text)
    scheme, _, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    return ObjectFolder(f"{scheme}://{bucket}", prefix, checked_options(options or {}))


def staging_beside(checkpoint: str) -> str:
    """Where the rows of the queries with a checkpoint in this directory are staged."""
    return f"{location(checkpoint)}/{_STAGING}"


def check_archive(place: Place) -> None:
    """Raise ConfigError if there is nothing at a location where an archive should be.

    Otherwise history would be what the broker still has, and nobody would notice that the rest is missing.
    """
    folder = folder_at(place)
    if not folder.exists():
        raise ConfigError(f"there is no directory {folder}: correct it, or start the archive", key="archive")


def _url(scheme: str, rest: str) -> str:
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not bucket:
        raise ConfigError(f"write {scheme}://BUCKET/FOLDER")
    if any(sign in bucket + prefix for sign in "?#:") or (scheme != "abfss" and "@" in bucket):
        raise ConfigError(
            f"the address of a {scheme} folder has neither credentials nor parameters in it: give those in "
            "the environment or as storage options"
        )
    folders = [each for each in prefix.split("/") if each]
    if any(each in (".", "..") for each in folders):
        raise ConfigError(f"a {scheme} folder is not called . or ..")
    return "/".join([f"{scheme}://{bucket}", *folders])
