"""A streaming query that copies a topic, as a program: `copying_query.py MASTER BROKER DIRECTORY`.

It runs until it is killed, and goes on from its checkpoint in its next life.
"""

from __future__ import annotations

import sys

from tidemark.spark.engine.session import session

#: Small, so that there are batches to be killed in.
BATCH_EVENTS = 100
SCHEMA = "[n: int, side: int, name: string]"

if __name__ == "__main__":
    master, broker, directory = sys.argv[1:]
    # Four attempts a task, also where Spark itself would have only one: `local[N,4]` says so in the master.
    spark = session("copying", master, **{"spark.local.dir": f"{directory}/spark"})
    query = (
        spark.readStream.format("tidemark")
        .option("broker", broker)
        .option("topic", "numbers")
        .option("columns", "n,side,name")
        .option("maxEventsPerTrigger", BATCH_EVENTS)
        .load()
        # Through a shuffle, to two tasks; those of one side stay in order.
        .repartitionById(2, "side")
        .writeStream.format("tidemark")
        .option("broker", broker)
        .option("topic", "copies")
        .option("key", "name")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .start()
    )
    query.awaitTermination()
