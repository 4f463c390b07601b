"""Configuration: every setting, where its value comes from, and how values are written.

`loading.load` is the entry: it gathers the values of one broker from defaults, file, environment and command
line, and returns a `settings.Config`. `settings` defines the settings, `values` reads and checks one value,
and `units` has durations, sizes and addresses. The topology in a file is read by `node.topology.file`.
"""
