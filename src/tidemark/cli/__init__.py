"""The command line: arguments in, a call into the house, text or JSON out.

One module a group of commands, put together in `root`. Small modules beside the commands make what they print
(`output`, `watching.screen`, `brokers.overview`); everything else is the work of `admin`, the client and the
node.
"""

from tidemark.cli.root import main

__all__ = ["main"]
