"""The disk that storage writes to.

`disk` has the interface and its contract. `real_disk` keeps it on the operating system's files, `memory_disk`
in memory, where it crashes, tears, fills up and rots on command; tests run storage on both.
"""
