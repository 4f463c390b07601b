"""Tests of `node.disk`."""
