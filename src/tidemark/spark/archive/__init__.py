"""The archive: pubend logs in Delta tables of Parquet, written exactly once, and read by anyone.

The entry for writing is `archive.Archive`, for reading `reader.read` and `reader.snapshot`, and for looking
after it `status.status`. `Archive.round` makes one round, in these steps:

1. `plan.backlog` compares what brokers hold with what the archive covers, `plan.lost_before` finds what is
   gone
   already, and `plan.divided` cuts a large backlog into tasks.
2. `Archive._learn` saves new schemas (`state.save_topics`) and gives the tables the columns that their fields
   need (`layout.ArchiveLayout.extended`, `table.ArchiveTable.to_write`).
3. `part.run_part` fetches tick ranges from brokers, `rows.to_rows` makes rows of the events, and
   `writer.PartWriter` writes the rows into Parquet files, with the `bounds` of their columns.
4. `table.ArchiveTable.add` commits the files of each table; the commit says what the round was
   (`recovery.about_round`).
5. `Archive.save` replaces the state (`state.save_state`), which ends the round.
6. `Archive._report` tells the pubends how far they are archived, so that they may release disk.
7. `compaction.Maintenance.run` merges small files and removes history that is not to be kept any more.

A crash between two steps is repaired when the archive is opened: `table.mend` removes a torn end of a log,
`table.remove_strays` removes files that no commit has, and `recovery.recovered` rebuilds a lost state.
"""
