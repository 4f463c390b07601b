"""What the stores of a broker know of each other, so that one which went back in time is noticed.

`known` is that knowledge: how far each store certainly was on the platter. `witness` keeps the newest of it
in small files of its own, `notes` in a stream of a log volume, and the tables among their counters.
"""
