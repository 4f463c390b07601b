"""Tests of `matching`."""
