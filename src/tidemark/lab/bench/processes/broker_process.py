"""The broker process of a bench: `python -m tidemark.node`, which ends with its parent process.

With TIDEMARK_BENCH_PROFILE=FILE the main thread is profiled into FILE, for `python -m pstats`.
"""

from __future__ import annotations

import cProfile
import os
import signal
import sys

from tidemark.node.process.parent import end_with_parent

PROFILE = "TIDEMARK_BENCH_PROFILE"


def run() -> int:
    """The broker's exit code."""
    # Only here: whoever starts a broker imports this module too, for its constant.
    from tidemark.node.__main__ import main

    end_with_parent(signal.SIGTERM)
    path = os.environ.get(PROFILE)
    if path is None:
        return main()
    profile = cProfile.Profile()
    try:
        return profile.runcall(main)
    finally:
        profile.dump_stats(path)


if __name__ == "__main__":
    sys.exit(run())
