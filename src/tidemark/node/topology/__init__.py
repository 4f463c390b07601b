"""The topology of an overlay: how it is written, checked, changed and spread.

`topology` has the value `Topology` and its parts; `Topology.build` makes one and lets `checks` refuse what
does not fit together. `file` reads it from TOML and `text` writes it. `plan` finds the steps from one
topology to another while brokers run, and `membership` holds the one that a broker goes by and passes newer
ones on.
"""
