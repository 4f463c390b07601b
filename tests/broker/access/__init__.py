"""Tests of `broker.access`."""
