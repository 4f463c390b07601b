"""Tests of `storage.events`."""
