"""Tests of the report on an archive."""
