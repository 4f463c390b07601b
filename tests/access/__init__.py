"""Tests of `access`."""
