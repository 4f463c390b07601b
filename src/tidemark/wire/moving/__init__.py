"""A named publisher goes from one pubend to another: frames and their bytes (docs/overlay.md)."""
