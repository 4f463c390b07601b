"""Tests of `queue`."""
