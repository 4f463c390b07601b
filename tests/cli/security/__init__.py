"""Tests of `cli.security`."""
