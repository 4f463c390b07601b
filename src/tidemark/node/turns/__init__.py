"""How connections share the event loop.

`turns` gives slices of its time to those that wait; `turn_taking` is a connection's part in it. `awake` keeps
the loop from sleeping, if that is wanted.
"""
