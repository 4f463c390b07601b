"""Tidemark: durable, content-based publish/subscribe over one log that Spark reads too."""

__version__ = "0.1.0"
