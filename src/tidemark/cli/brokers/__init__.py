"""Commands that run brokers, show their configuration, and look at and change overlays."""
