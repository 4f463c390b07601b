"""Tests of `ticks`."""
