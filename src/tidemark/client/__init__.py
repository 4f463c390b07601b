"""The client: publish and subscribe over a connection that is kept up, and what the application keeps.

`subscribing/inbox` and `publishing/outgoing` are state machines that know no socket: what has been delivered
and consumed, what has been published and acknowledged. `connecting/link` keeps a connection to one of several
brokers. `client` puts the parts together and is what applications hold.
"""
