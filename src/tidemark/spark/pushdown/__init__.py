"""Pushdown: conditions of Spark and Arrow as selectors of the same meaning."""
