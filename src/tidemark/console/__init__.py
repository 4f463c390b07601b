"""The console and the HTTP door: a process beside the brokers, and a client of them like any other.

The console shows an overlay to people (`pages`), and the HTTP door lets programs of any language publish and
subscribe (`door`). Neither can slow a broker more than any client can: what many browsers look at is asked of
the brokers once (docs/console.md).
"""
