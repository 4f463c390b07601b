"""The broker process: sockets, disk threads and a clock around the sans-I/O broker.

`process.process.run` is the entry of the process, `node.Node.start` that of one broker in it. Who owns what:

    Node                    one broker; its configuration, data directory and store
    |- Runtime              handles stimuli and carries out effects, on the event loop
    |  |- Broker            the core (tidemark.broker); only the runtime calls it
    |  `- DiskThreads       disk effects to `persistence.store.Store`, on two threads
    |- Membership           which topology holds, and how a newer one reaches this broker
    |- Server               the listening socket
    |  |- Connection        a client or a neighbour, over a socket
    |  |- LocalLink         a neighbour in the same process
    |  `- Leases            clients that may be away: a Leaseholder each
    |- LinkCaller           connects to the neighbours that this broker has to call
    |- HttpServer, Metrics  /health and /metrics
    `- ProcessAdmin         answers administrators' questions about the process

A connection, a local link and a leaseholder are each a `RuntimeConnection`: the runtime sends frames through
them and does not know which of them it has. What they receive goes to the runtime as frames of a client or
of a neighbour, and what happens to them goes to the server. Everything but the disk threads runs on one event
loop, so nothing here is locked; beside each collection that is shared stands who may change it.
"""
