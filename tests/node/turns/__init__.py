"""Tests of `node.turns`."""
