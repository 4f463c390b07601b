"""Tests of `node.security`."""
