"""Tests of `node.config`."""
