"""The protocols of the peers, on bare sockets: each module has a publisher and a durable subscriber."""
