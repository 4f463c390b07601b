"""Tests of `lab`."""
