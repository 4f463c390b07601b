"""Tests of `node.leases`."""
