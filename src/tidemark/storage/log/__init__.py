"""The log volume: many log streams on the segment files of one directory (DSN'03 4.2).

`volume` is the entry. It gathers records in memory, `writer` writes them in groups to the last of the
`segments`, and `reader` reads them back. `stream` and `rows` know in memory where each record is, `record` is
the form of one on disk, and `catalogue` the records that name the streams. `recovery` finds all of it again
from the files. `identity` and `reserve` are the two other files of the directory; `damage` is the report of
what cannot be read.

What a crash may lose, file by file:
- the last segment: what was written since the last sync, of which any prefix may survive. Nobody was told
  that it is durable, and recovery cuts what is torn.
- other segments: nothing, since each is synced when it is sealed. A segment that was removed may come back:
  the catalogue still says that its records are chopped.
- `volume`: nothing, since it is synced under another name and renamed before the first segment is created.
- `reserve`: the whole file, which holds only zeros and is created again.
"""
