"""Tests of selectors as Spark SQL."""
