"""System benchmarks: a broker process under load, with a check of everything that arrived."""
