"""Tests of `persistence`."""
