"""Spark from source to sink: a streaming query that reads a topic and publishes what it makes of it.

The query goes on from its checkpoint after every restart, and publishes each result once. It handles all
trades that there are and ends. Start a broker with its archive first, `./run up`, publish some trades, with
`python examples/quickstart.py` say, then:

    python examples/spark_source_to_sink.py [tidemark://127.0.0.1:7676] [tidemark-data/archive] [CHECKPOINT]
"""

from __future__ import annotations

import sys
from typing import Any

from tidemark.spark.engine.session import session


def main(spark: Any, url: str, archive: str, checkpoint: str) -> None:
    trades = (
        spark.readStream.format("tidemark")
        .option("broker", url)
        .option("topic", "trades")
        .option("start", "earliest")
        # Events that the broker has released are read from the archive.
        .option("archive", archive)
        # The broker applies the selector, and sends only these columns.
        .option("selector", "price > 10")
        .option("columns", "symbol,price,qty")
        .load()
    )
    query = (
        trades.selectExpr("symbol", "price * qty AS amount")
        .writeStream.format("tidemark")
        .option("broker", url)
        .option("topic", "amounts")
        .option("key", "symbol")
        # Where the query keeps how far it got.
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("published the amounts")


if __name__ == "__main__":
    defaults = ["tidemark://127.0.0.1:7676", "tidemark-data/archive", "checkpoints/amounts"]
    main(session(), *(sys.argv[1:] + defaults[len(sys.argv) - 1 :]))
