"""Leases: clients that may be away, the frames that wait for them, and the calls that bring them back.

`leases` is the entry: the server grants and ends leases there, and it calls clients that have mail.
`leaseholder` is one client with a lease, `mailbox` what waits for it, and `callback_policy` decides which
addresses a broker may call.
"""
