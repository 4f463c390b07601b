"""Tests of `storage.pfs`."""
