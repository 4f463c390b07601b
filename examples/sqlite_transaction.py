"""Exactly once into SQLite: the total of each trade and the checkpoint token commit in one transaction.

Kill the program at any moment and start it again: the totals are right. Start a broker first, `./run up`,
then:

    python examples/sqlite_transaction.py totals.db [tidemark://127.0.0.1:7676]
"""

from __future__ import annotations

import sqlite3
import sys

import tidemark

NAME = "totals"
ADD = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (symbol) DO UPDATE SET qty = qty + excluded.qty"


def main(path: str, url: str) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS totals (symbol TEXT PRIMARY KEY, qty INTEGER NOT NULL)")
    store = tidemark.SqliteCheckpoints(database)
    store.create()
    # The first time there is no token: load() returns None and the subscription begins now.
    with (
        tidemark.sync.connect(url) as tm,
        tm.subscribe(
            "trades", where="price > 10", durable=NAME, checkpoint=store.load(NAME), gaps=True
        ) as sub,
    ):
        print("waiting for trades", flush=True)
        for item in sub:
            with database:  # one transaction: the application's data, and how far the application got
                if isinstance(item, tidemark.Event):
                    database.execute(ADD, (item["symbol"], item["qty"]))
                else:
                    print(f"these events are gone: {item}", file=sys.stderr)
                store.save(NAME, sub.checkpoint)
            # The token is committed, so brokers may release the events before it.
            sub.ack(sub.checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tidemark://127.0.0.1:7676")
