"""Tests of `broker`."""
