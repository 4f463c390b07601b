"""The demo: a story on real processes that ends with its own audit."""
