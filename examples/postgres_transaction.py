"""Exactly once into PostgreSQL, a batch at a time: rows and checkpoint token commit in one transaction.

The program needs `psycopg` (or any PEP 249 driver: change the import and the COPY). Start a broker first,
`./run up`, then:

    python examples/postgres_transaction.py "dbname=app" [tidemark://127.0.0.1:7676]
"""

from __future__ import annotations

import sys

import psycopg  # type: ignore[import-not-found]  # not a dependency of Tidemark

import tidemark

NAME = "audit"
COLUMNS = ("_tick", "symbol", "price", "qty")


def main(database: str, url: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS trades (tick BIGINT, symbol TEXT, price FLOAT8, qty INT)"
        )
        store = tidemark.DbApiCheckpoints(connection, paramstyle=psycopg.paramstyle)
        store.create()
        connection.commit()
        saved = store.load(NAME)
        with (
            tidemark.sync.connect(url) as tm,
            tm.subscribe("trades", durable=NAME, checkpoint=saved, gaps=True) as sub,
        ):
            for batch in sub.batches():
                with connection.transaction(), connection.cursor() as cursor:
                    if isinstance(batch, tidemark.Batch):
                        columns = [batch.column(name).tolist() for name in COLUMNS]
                        with cursor.copy("COPY trades FROM STDIN") as copy:
                            for row in zip(*columns, strict=True):
                                copy.write_row(row)
                    else:
                        print(f"these events are gone: {batch}", file=sys.stderr)
                    store.save(NAME, sub.checkpoint)
                # The token is committed, so brokers may release the events before it.
                sub.ack(sub.checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tidemark://127.0.0.1:7676")
