"""History: all events of a topic as one DataFrame, from the archive and from the broker at once.

Brokers release events that everyone has consumed; the archive keeps them. Start a broker with its archive
first, `./run up`, publish some trades, with `python examples/quickstart.py` say, then:

    python examples/spark_history.py [tidemark://127.0.0.1:7676] [tidemark-data/archive]
"""

from __future__ import annotations

import sys
from typing import Any

from tidemark.spark import history
from tidemark.spark.engine.session import session


def main(spark: Any, url: str, archive: str) -> dict[str, int]:
    """Print, and return, how many trades over 10 there were of each symbol."""
    # Events that are archived are read from the archive's files; the broker gives what is newer.
    trades = history(spark, "trades", "price > 10", broker=url, archive=archive)
    counted = trades.groupBy("symbol").count().orderBy("symbol")
    counted.show()
    return {row["symbol"]: row["count"] for row in counted.collect()}


if __name__ == "__main__":
    broker = sys.argv[1] if len(sys.argv) > 1 else "tidemark://127.0.0.1:7676"
    main(session(), broker, sys.argv[2] if len(sys.argv) > 2 else "tidemark-data/archive")
