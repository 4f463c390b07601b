"""A directory for PYTHONPATH, with what every Python process of the tests runs at its start."""
