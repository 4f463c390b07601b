"""Matching: who wants which events. No I/O.

`selectors` reads and checks what a subscriber wrote, `forms` brings it into a form that can be compared,
`vectors` evaluates it over whole batches, `matcher` and its `index` do so for all subscriptions at once.
"""
