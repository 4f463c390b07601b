"""Tests of filters that Spark or Arrow hand over as selectors."""
