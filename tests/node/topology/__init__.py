"""Tests of `node.topology`."""
