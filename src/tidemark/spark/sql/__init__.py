"""Selectors as Spark SQL.

The entry is `expression.to_spark_sql`. `text` writes names and constants, `decimals` compares decimals
exactly, and `like` writes LIKE so that it runs in linear time.
"""
