"""Where archives, staged events and the spool are kept: a mounted file system, or an object store.

`folder.Folder` is the one interface; `mounted.MountedFolder` and `objects.ObjectFolder` implement it, and
`spark.locations.folder_at` makes one from what a user writes. `hold` makes a process the only writer of a
folder, by a lock or by a lease, and `probe` refuses object stores that ignore the conditions of a put.
"""
