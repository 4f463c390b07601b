"""The fuzzer: well-formed frames with hostile values, sent to a real broker beside well-behaved clients."""
