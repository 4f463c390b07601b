"""Configuration: every setting, where its value comes from, and how values are written."""
