"""Tests of the archive as it was."""
