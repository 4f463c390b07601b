"""Connecting: addresses, sockets, links that are made again, and requests that wait for an answer."""
