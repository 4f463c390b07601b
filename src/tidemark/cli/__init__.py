"""The command line: arguments in, a call into the library, text or JSON out.

Each module has a group of commands, which `root` puts together. Modules beside them make the texts they print
(`output`, `watching.screen`, `brokers.overview`); everything else is the work of `admin`, the client and the
node.
"""

from tidemark.cli.root import main

__all__ = ["main"]
