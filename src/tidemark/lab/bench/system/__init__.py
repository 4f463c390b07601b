"""System benchmarks: a broker process under load, judged by what arrived."""
