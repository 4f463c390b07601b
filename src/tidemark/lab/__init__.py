"""The lab: benchmarks, the demo, and later the papers' experiments."""
