"""The lab: benchmarks, the demo, and the experiments of the papers."""
