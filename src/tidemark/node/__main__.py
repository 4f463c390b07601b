"""`python -m tidemark.node`: a broker, or all brokers of a topology, without the rest of the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from tidemark.errors import TidemarkError
from tidemark.message.visible import visible_lines
from tidemark.node.config.loading import load
from tidemark.node.process.parent import end_with_parent
from tidemark.node.process.process import NOT_STARTED, run
from tidemark.node.process.topology_runner import run_topology
from tidemark.node.workers.handover import WorkerSeat
from tidemark.node.workers.subscription_workers import FILE_NAME


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run the brokers. Returns the exit code, as docs/operations.md lists them."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.node", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="settings, or a topology of several brokers")
    parser.add_argument(
        "--broker",
        metavar="NAME",
        action="append",
        help="which broker of the topology to run, or several",
    )
    parser.add_argument("--all", action="store_true", help="run all brokers of the topology, a process each")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any other setting")
    parser.add_argument(
        "--channel", metavar="NUMBER", type=int, help="the open file over which a worker gets its connections"
    )
    parser.add_argument("--parent", metavar="NUMBER", type=int, help="the process that a worker ends with")
    given = parser.parse_args(arguments)
    try:
        if given.all:
            return run_topology(given.config)
        options = dict(each.partition("=")[::2] for each in given.set)
        names = given.broker or [None]
        configs = [load(given.config, broker=name, environment=os.environ, options=options) for name in names]
        seat = None
        if given.channel is not None:
            end_with_parent(signal.SIGTERM, given.parent)
            seat = WorkerSeat(given.channel, Path(given.config).absolute().with_name(FILE_NAME))
        return run(*configs, seat=seat)
    except TidemarkError as error:
        print(f"tidemark: {visible_lines(str(error))}", file=sys.stderr)
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
