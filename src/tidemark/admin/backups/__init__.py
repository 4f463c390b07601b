"""Backups of brokers, and back (docs/howto/backup.md).

`make` copies the stores of a running broker into a directory, `manifest` says what belongs to a backup,
`places` finds backups in the directory that they are kept in, `copying` copies files and checks the copies,
and `restore` makes a data directory of a backup.
"""
