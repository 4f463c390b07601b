"""Tests of `sim`."""
