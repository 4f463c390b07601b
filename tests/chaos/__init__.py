"""Tests of `chaos`."""
