"""Workers: several brokers on one machine in place of one, which are one address to their clients.

`layout` writes the topology of the workers. `acceptor` is a process that accepts connections at the one
address and chooses a worker for each; `handover` is the channel over which the worker gets the socket, and
`front` is what the process that starts all of them holds: the listening socket and both ends of the channels,
so that any of the others may be killed. `places` is a file that says which worker has which durable
subscription, and `redirects` sends a client there that has come to another worker.
"""
