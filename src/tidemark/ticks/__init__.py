"""ticks."""
