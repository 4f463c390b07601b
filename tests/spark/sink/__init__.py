"""Tests of the sink: row encoding and staging without Spark, then on a broker and on Spark."""
