"""Tests of history as a DataFrame."""
