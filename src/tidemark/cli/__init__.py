"""The command line: arguments in, a call into the house, text or JSON out.

One module a group of commands, put together in `root`. What a command prints is made by small modules beside
them (`output`, `survey`, `screen`, `verdict`, `tree`); everything else is the client's and the node's work.
"""

from tidemark.cli.root import main

__all__ = ["main"]
