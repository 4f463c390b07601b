"""Tests of `wire.liveness`."""
