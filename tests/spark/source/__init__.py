"""Tests of the data source: plans and reading without Spark, then on a broker and on Spark."""
