"""Tests of `message`."""
