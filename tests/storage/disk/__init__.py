"""Tests of `storage.disk`."""
