"""How Spark finds the format "tidemark": it takes the `DefaultSource` of every package named `pyspark_*`.

A package that cannot be imported would hide the formats of all the others, so nothing else is in this one.
"""

from tidemark.spark.source.source import TidemarkSource as DefaultSource

__all__ = ["DefaultSource"]
