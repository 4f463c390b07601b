"""Damage: a broker's data directory is harmed in one place at a time, and what follows is judged by ledgers.

`stepped_broker` is a broker on a real data directory, without threads or sockets, and its clients with their
ledgers. `story` is what they do before the harm; `harms` is what is done to the files; `campaign` does one
harm after the other to a copy of the directory, starts the broker again, lets all clients return, and judges.
"""
