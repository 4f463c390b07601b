"""The broker process of a bench: `python -m tidemark.node`, which ends with whoever has started it.

With TIDEMARK_BENCH_PROFILE=FILE its main thread is profiled, and FILE is what `python -m pstats` reads.
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
