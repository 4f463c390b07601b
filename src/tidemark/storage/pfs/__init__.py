"""The persistent filtering subsystem: which ticks matched which durable subscriber (DSN'03 4.2).

The constream writes it and catchup streams read it. `filtering` is the entry. It has a `stream` for each
pubend: blocks of rows, of which the last is open in memory (`openblock`) and all others are on disk.
`blocklog` writes the records of blocks to a log stream and finds them again; `record` and `varints` are their
form. `extents` knows which block has which ticks, `columns` has the rows of a block, `growing` those of the
open one, and `cache` the blocks that were read lately. `reading` answers what subscribers missed.

What a crash may lose: what was appended or chopped since the last sync. That is safe because latest_delivered
goes up only after the sync: the same events are matched again, and what the PFS already has changes nothing.
"""

from tidemark.storage.pfs.filtering import PersistentFiltering
from tidemark.storage.pfs.reading import Missed

__all__ = ["Missed", "PersistentFiltering"]
