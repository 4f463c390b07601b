"""The persistent filtering subsystem: which ticks matched which durable subscriber (DSN'03 4.2).

Written by the constream, read by catchup streams; precise unless told otherwise. `filtering` is the door.
"""

from tidemark.storage.pfs.filtering import Filtered, PersistentFiltering
from tidemark.storage.pfs.reading import Missed

__all__ = ["Filtered", "Missed", "PersistentFiltering"]
