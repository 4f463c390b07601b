"""What a script of a user's looks like that meets all that is wrong: `console_script.py BROKER DIRECTORY`."""

from __future__ import annotations

import sys

from tidemark.spark.engine import plain_errors
from tidemark.spark.engine.session import session

if __name__ == "__main__":
    broker, directory = sys.argv[1:]
    spark = session()
    wrong = {"option": {"broker": broker, "selectr": "n > 1"}, "nobody": {"broker": "tidemark://127.0.0.1:1"}}
    for name, options in wrong.items():
        try:
            spark.read.format("tidemark").options(topic="numbers", retrySeconds="0.2", **options).load()
        except Exception as error:
            print(f"{name}: {plain_errors.own_error_text(error)}", flush=True)
    query = (
        spark.readStream.format("tidemark")
        .options(broker=broker, topic="numbers", retrySeconds="2")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", directory)
        .start()
    )
    while not query.recentProgress:
        query.awaitTermination(0.1)
    print("running", flush=True)
    query.awaitTermination()
