"""The client: publish and subscribe over a connection that is kept up, and what the application keeps.

`inbox` and `outgoing` are the state machines: what has been delivered and consumed, what has been published
and acknowledged. They know no socket. `link` keeps a connection to one of several brokers; `client` puts
it all together and is what applications hold.
"""
