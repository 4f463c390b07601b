"""Tests of `spark`."""
