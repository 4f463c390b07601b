"""What is done to an archive that lives: old history goes, events are erased, and it is checked.

`retention.retire` removes what is older than is to be kept. `erasure.Erasure` says what is to be erased, and
`erasing.erase_from` does it. Both rewrite files, as tasks of a Spark job or in this process.
`verifying.verify` compares the archive with what brokers still hold, and reads every file.
`backfilling.backfill` puts files or a table into a topic. All are resumable and leave a report.
"""
