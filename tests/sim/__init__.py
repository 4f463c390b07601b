"""Tests of the simulator, and of the broker core in it."""
