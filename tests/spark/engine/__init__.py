"""Tests of sessions, their Java, their errors, and the same jobs on every engine."""
