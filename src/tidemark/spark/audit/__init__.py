"""The audit: whether every event was delivered exactly once and in order, judged from ledgers."""
