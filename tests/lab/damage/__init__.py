"""Tests of the campaign that harms a data directory."""
