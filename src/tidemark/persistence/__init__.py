"""Persistence: carries out the disk effects of a broker on the logs, the PFS and the tables of `storage`."""
