"""Tests of the benchmarks: what they report, and that a wrong result fails a run."""
