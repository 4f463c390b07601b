"""Persistence: carries out the disk effects of a broker on the logs, the PFS and the tables of `storage`.

`store` is the entry: it opens the storage, recovers a broker's state, and carries out one effect at a time.
It has three parts: `event_logs` for the pubends hosted here, `pfs_store` for the PFS, and `table_store` for
the tables. The latter two lose nothing when the disk is full, because of `patient_sync`. The node runs the
store on its disk threads, the simulator on disks in memory.
"""
