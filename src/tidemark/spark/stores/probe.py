"""Does an object store keep the conditions of a put? An archive in one that ignores them would be damaged.

The probe makes an object twice under the condition that there is none, and replaces it twice under the
condition that its tag is the first one. Each time the second put must be refused.
"""

from __future__ import annotations

from uuid import uuid4

from tidemark.errors import ConfigError
from tidemark.spark.stores.folder import Folder

PROBE = "probe"


def probe(folder: Folder) -> float:
    """Raise ConfigError if the store ignores conditions. Returns the time by the clock of the store."""
    name = f"{PROBE}-{uuid4().hex}"
    try:
        is_made = folder.create_once(name, b"1")
        if not is_made or folder.create_once(name, b"2"):
            raise _refused(folder, "a second object of the same name was made in place of the first one")
        found = folder.read_tagged(name)
        if found is None or found.data != b"1":
            raise _refused(folder, "an object that was put is not there")
        if not found.tag or not folder.replace_tagged(name, b"3", found.tag):
            raise _refused(folder, "an object could not be replaced by its tag")
        if folder.replace_tagged(name, b"4", found.tag):
            raise _refused(folder, "an object was replaced although its tag had changed")
        (there,) = folder.files(prefix=name)
        return there.modified
    finally:
        folder.remove(name)


def _refused(folder: Folder, what: str) -> ConfigError:
    return ConfigError(
        f"{folder} cannot hold an archive: the store ignores the conditions of a put ({what}). Take a store "
        "that honours If-None-Match and If-Match, or a mounted directory",
        key="archive",
    )
