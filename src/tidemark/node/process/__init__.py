"""Processes: the broker process itself, the processes beside it, and several brokers on one machine.

`process.run` is the entry: it runs one or more brokers until a signal. `topology_runner` starts all processes
of a topology on one machine; several brokers in place of one are in `node.workers`.
`supervised_process` keeps another process running beside a broker; `archiving` makes the one of the archive,
and warns when the archive stays behind. `parent` lets a child process end with its parent.
"""
