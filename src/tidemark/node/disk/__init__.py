"""The disk of a broker process: its directory, its threads, and how many bytes wait to become durable.

`disk_threads` is the entry: the runtime puts a broker's disk effects there and hears of their completion as a
`DiskListener`. It runs two threads of `disk_thread`, one for the event logs and one for the PFS and the
tables. `backlog` counts what is on its way. `data_directory` locks and describes the directory that all of it
lies in, and `unsynced_disk` is the disk for `storage.durability = "os"`.
"""
