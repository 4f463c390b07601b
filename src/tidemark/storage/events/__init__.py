"""The event log of a pubend: its events, the last event of each publisher, and what recovery needs.

`event_log` is the entry. `record` is the form of what it writes into the streams of a log volume, and
`publishers` remembers the last event of each publisher.
"""
