"""History: all events of a topic as a DataFrame, from the archive and the brokers together.

The entry is `frame.history`. `scan.TableScan` decides, for one table of the archive, which files are read and
with which condition; `sql` writes fields, conditions and types of that table as Spark SQL. What lies beyond
the archive is read like the data source reads it (`spark.source.scan`).
"""
