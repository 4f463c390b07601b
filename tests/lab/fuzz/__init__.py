"""Tests of the fuzzer, and its fixed part."""
