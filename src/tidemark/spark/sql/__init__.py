"""Selectors as Spark SQL expressions of the same meaning."""
