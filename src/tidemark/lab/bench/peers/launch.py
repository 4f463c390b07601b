"""Starts a program that ends with its parent: `python -m tidemark.lab.bench.peers.launch PROGRAM ...`."""

from __future__ import annotations

import os
import signal
import sys

from tidemark.node.process.parent import end_with_parent

if __name__ == "__main__":
    end_with_parent(signal.SIGTERM)
    os.execvp(sys.argv[1], sys.argv[1:])
