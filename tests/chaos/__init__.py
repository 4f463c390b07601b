"""Real processes are killed, stopped, starved and cut off, and their ledgers are audited."""
