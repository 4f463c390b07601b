"""Tests of `node.process`."""
