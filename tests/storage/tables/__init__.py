"""Tests of `storage.tables`."""
