"""Tests of `storage.log`."""
